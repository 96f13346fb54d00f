"""Kernels, which compute gradients. To add one, write its file and list it here; `auto` takes the first that serves.

base      what a kernel is
native    the paper's CNN in C
autograd  `torch`: any torch module
partial   a part of a torch module: what is frozen, and where it is cut
stacked   the same of many models at once
layers    what such a stack is made of
devices   what torch can compute on besides the CPU
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airprune.components.registry import Registry
from airprune.errors import InvalidValue
from airprune.models.losses import CROSS_ENTROPY

if TYPE_CHECKING:
    from airprune.models.kernels.base import Kernel

KERNELS: Registry[Kernel] = Registry(
    "kernels", {"native": "airprune.models.kernels.native:KERNEL", "torch": "airprune.models.kernels.autograd:KERNEL"}
)


def kernel_for(
    wanted: str,
    model: Any,
    x: Any,
    y: Any,
    *,
    loss: str = CROSS_ENTROPY,
    device: str = "cpu",
    teaches: bool = False,
    needs_module: str = "",
) -> str:
    """The name of the kernel that `train.kernel` means for this model, these samples, this loss and this device.

    Args:
      teaches: the masking asks for distillation, which is of cross-entropy on the CPU.
      needs_module: what works on the torch module itself between two steps, if anything does.
    """

    def unsupported(name: str) -> str:
        kernel = KERNELS[name]
        if kernel.losses and loss not in kernel.losses:
            return f"it does not know the loss {loss!r}"
        if device not in kernel.devices:
            return f"it does not compute on {device!r}"
        if teaches and (kernel.teaching is None or loss != CROSS_ENTROPY or device != "cpu"):
            return "it does not distil, which the masking asks for"
        if needs_module and not kernel.takes_modules:
            return f"it computes without the torch module, which {needs_module} needs"
        return kernel.unsupported(model, x, y)

    if wanted != "auto":
        problem = unsupported(wanted)
        if problem:
            rule = f"cannot be {wanted}: {problem}"
            raise InvalidValue("Scenario.train.kernel", rule, repr(wanted), "Use auto or torch.")
        return wanted
    return next(name for name in KERNELS if not unsupported(name))


__all__ = ["KERNELS", "kernel_for"]

"""What computes gradients. To add a kernel, write its file and list it here; `auto` takes the first that serves.

base      what a kernel is
native    the paper's CNN in C
autograd  `torch`: any torch module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airprune.errors import InvalidValue
from airprune.registry import Registry

if TYPE_CHECKING:
    from airprune.kernels.base import Kernel

KERNELS: Registry[Kernel] = Registry(
    "kernels", {"native": "airprune.kernels.native:KERNEL", "torch": "airprune.kernels.autograd:KERNEL"}
)


def kernel_for(wanted: str, model: Any, x: Any, y: Any, *, teaches: bool = False) -> str:
    """The name of the kernel that `train.kernel` means for this model and these samples, and for distillation."""

    def unsupported(name: str) -> str:
        if teaches and KERNELS[name].teaching is None:
            return "it does not distil, which the masking asks for"
        return KERNELS[name].unsupported(model, x, y)

    if wanted != "auto":
        problem = unsupported(wanted)
        if problem:
            rule = f"cannot be {wanted}: {problem}"
            raise InvalidValue("Scenario.train.kernel", rule, repr(wanted), "Use auto or torch.")
        return wanted
    return next(name for name in KERNELS if not unsupported(name))


__all__ = ["KERNELS", "kernel_for"]

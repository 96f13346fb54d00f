"""A device between its rounds: training settings, its model and samples, the addresses of its randomness.

One `Device` serves any number of simulated devices after each other: nothing of one is left for the next.
Torch is imported only by what needs it: a model that is a torch module, Adam, diagnostics, the loss of Eq. (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from airprune.components.component import LocalComponent, ModelShape
from airprune.methods.augmentations.base import Augmentation
from airprune.methods.compression.base import Wire
from airprune.methods.loops.base import Loop
from airprune.methods.objectives.base import Objective
from airprune.methods.optimisers.base import Optimiser, StepSettings
from airprune.methods.optimisers.sgd import Sgd
from airprune.models.kernels import KERNELS
from airprune.models.kernels.base import Teaching
from airprune.models.layout import LocalModel, Part
from airprune.randomness import NumberedStreams
from airprune.rounds.method import LocalMethod
from airprune.rounds.own_training import Training
from airprune.rounds.rates import StepRates
from airprune.rounds.sending import secret_normals
from airprune.scenario import Scenario

if TYPE_CHECKING:
    from airprune.models.kernels.autograd import MinibatchLoss
    from airprune.models.losses.base import Loss

Array = np.ndarray
# That share the memory for features where devices may be trained together; alone they take no more, so that what is
# kept, and how it rounds, does not depend on who trains beside them.
FEATURE_SHARES = 64


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """Training settings of all devices; the learning rate comes with the orders.

    Attributes:
      loop: what trains in place of minibatch steps, if anything does.
      step_rates: the schedule of the learning rate, where it follows local steps.
      augmentation: of the samples of each minibatch, if there is one.
      clip_norm, noise_multiplier: of differential privacy; `noise_of_sum` if a sum of updates has that noise.
    """

    batch_size: int
    local_epochs: int
    local_steps: int | None = None
    loop: Loop | None = None
    optimizer: Optimiser = field(default_factory=Sgd)
    momentum: float = 0.0
    weight_decay: float = 0.0
    step_rates: StepRates | None = None
    clip_gradient_norm: float | None = None
    clip_gradient_value: float | None = None
    augmentation: Augmentation | None = None
    clip_norm: float | None = None
    noise_multiplier: float = 0.0
    noise_of_sum: bool = False
    diagnostics: bool = False
    kernel: str = "torch"
    device: str = "cpu"
    feature_cache_mb: float = 0.0

    @classmethod
    def of(
        cls, scenario: Scenario, kernel: str, device: str = "cpu", training: Training | None = None
    ) -> LocalSettings:
        """Returns those of a scenario; `training` as `Training.of` has it, where a script gave functions of its own."""
        train, training = scenario.train, training or Training.of(scenario)
        return cls(
            batch_size=train.batch_size,
            local_epochs=train.local_epochs,
            local_steps=train.local_steps,
            loop=training.loop,
            optimizer=training.optimizer,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
            step_rates=StepRates.of(scenario),
            clip_gradient_norm=train.clip_gradient_norm,
            clip_gradient_value=train.clip_gradient_value,
            augmentation=training.augmentation,
            clip_norm=scenario.privacy.clip_norm,
            noise_multiplier=scenario.privacy.noise_multiplier,
            noise_of_sum=scenario.privacy.noise_of == "sum",
            diagnostics=scenario.diagnostics.gradients,
            kernel=kernel,
            device=device,
            feature_cache_mb=train.feature_cache_mb,
        )

    @property
    def clips_gradients(self) -> bool:
        return self.clip_gradient_norm is not None or self.clip_gradient_value is not None

    @property
    def needs_module(self) -> bool:
        """True if a device must have the torch module at hand between two steps, so that it trains alone."""
        return self.loop is not None or self.augmentation is not None

    def steps(self, learning_rate: float, tensors: Sequence[Part] = ()) -> StepSettings:
        """Returns the settings of a round's optimiser."""
        return StepSettings(
            learning_rate=learning_rate, momentum=self.momentum, weight_decay=self.weight_decay, tensors=tensors
        )


@dataclass(frozen=True, eq=False)
class Streams:
    """The random streams of one edge round, one for each device, made at first use.

    Attributes:
      secret_noise: whether the noise of privacy is sampled so that it cannot be repeated, instead of from the seed.
    """

    seed: int
    global_round: int
    edge_round: int
    secret_noise: bool = field(default=False, kw_only=True)

    @cached_property
    def batches(self) -> NumberedStreams:
        """The order in which samples are visited."""
        return self._named("device")

    @cached_property
    def masking(self) -> NumberedStreams:
        return self._named("masking")

    @cached_property
    def compression(self) -> NumberedStreams:
        return self._named("compression")

    @cached_property
    def augmentation(self) -> NumberedStreams:
        return self._named("augmentation")

    @cached_property
    def loop(self) -> NumberedStreams:
        """For training loops."""
        return self._named("loop")

    @cached_property
    def privacy(self) -> NumberedStreams:
        return self._named("privacy")

    def noise(self, device: int, size: int) -> Array:
        """Standard normal numbers of a device.  [size]"""
        return secret_normals(size) if self.secret_noise else self.privacy[device].standard_normal(size)

    def _named(self, stream: str) -> NumberedStreams:
        return NumberedStreams(self.seed, stream, self.global_round, self.edge_round)


class Trained(NamedTuple):
    """The local steps of a device in one edge round, added up; see `Upload` and `LocalRun`."""

    loss: float
    loss_sq: float
    num_samples: int
    num_steps: int
    gradient_sq_max: float
    gradient_sum: Array | None


class Device:
    """One model and the samples around it: all that a device round needs and that outlives it.

    Args:
      loss: what is minimised; none is cross-entropy.

    Attributes:
      waits: whether the gradient that a masking asks for is computed like those of the steps: with other devices'.
    """

    waits = False

    def __init__(
        self,
        model: LocalModel,
        x: Array,
        y: Array,
        settings: LocalSettings,
        method: LocalMethod,
        wire: Wire,
        *,
        loss: Loss | None = None,
    ) -> None:
        self.model, self.settings, self.method, self.wire = model, settings, method, wire
        self.shape: ModelShape = model.shape
        self.minimised = loss
        self.gradient = KERNELS[settings.kernel].build(model, x, y, loss=loss, device=settings.device)
        self.teaching: Teaching | None = None
        if method.masking.teaches:
            build = KERNELS[settings.kernel].teaching
            assert build is not None  # `kernel_for` has checked it
            self.teaching = build(model, x, y)
        widened = model.state_array.dtype == np.float64 and x.dtype == np.float32
        self.x, self.y = x.astype(np.float64) if widened else x, y
        self.adjusts = method.objective.overrides(Objective.adjust)
        self.finishes = any(part.overrides(LocalComponent.finish) or part.sends_reports for part in method.local_parts)
        self.memory_slots = method.compression.slots(self.shape)
        self.weight_index = np.flatnonzero(self.shape.is_weight)
        self._smaller: dict[tuple[int, ...], Device | None] = {}
        self.tensor_stops = np.array([tensor.stop for tensor in self.shape.tensors if tensor.counted])

    @cached_property
    def loss(self) -> MinibatchLoss:
        """F as torch computes it, for Eq. (1)."""
        from airprune.models.kernels.autograd import MinibatchLoss

        return MinibatchLoss(self.model, self.x, self.y, loss=self.minimised, device=self.settings.device)

    @property
    def constants(self) -> ModuleType:
        """The module that measures diagnostics."""
        from airprune.rounds import constants

        return constants

    @cached_property
    def feature_bytes(self) -> int:
        """Returns the memory for the features of one device's round."""
        shares = 1 if KERNELS[self.settings.kernel].stack is None else FEATURE_SHARES
        return int(self.settings.feature_cache_mb * 1e6) // shares

    def probe(self, batch: Array) -> None:
        """∇F of the prunable weights into the model's `gradient_array`; what is in the rest of it does not matter."""
        getattr(self.gradient, "of_prunable", self.gradient)(batch)

    def augment(self, rng: np.random.Generator | None) -> None:
        """Augments the samples of all gradients from now on, by this stream; None: no longer."""
        augmentation, gradient = self.settings.augmentation, cast(Any, self.gradient)
        assert augmentation is not None  # only kernels that take a transform are chosen then
        gradient.transform = None if rng is None else partial(augmentation.apply, rng=rng)

    def smaller(self, kept: tuple[Array, ...]) -> Device | None:
        """A device around the model of so many units of each group; None if training needs, or is, the whole one."""
        settings = self.settings
        if self.adjusts or settings.diagnostics or settings.weight_decay:
            return None
        counts = tuple(int(np.count_nonzero(stays)) for stays in kept)
        if counts not in self._smaller:
            self._smaller[counts] = self._built(kept)
        return self._smaller[counts]

    def _built(self, kept: tuple[Array, ...]) -> Device | None:
        model = self.model.smaller(kept, self.x[:1])
        if model is None or KERNELS[self.settings.kernel].unsupported(model, self.x, self.y):
            return None  # another kernel would be slower than this one on zeros
        return Device(model, self.x, self.y, self.settings, self.method, self.wire, loss=self.minimised)


def minibatches(
    settings: LocalSettings, local_steps: int | None, samples: Array, rng: np.random.Generator
) -> list[Array]:
    """Numbers of the samples of every minibatch; each epoch visits all samples in an order of its own.

    Ordered steps may be more than `local_epochs` have; a bound of the settings is none.

    Args:
      local_steps: as in `Orders`.
    """
    last_step = settings.local_steps if local_steps is None else local_steps
    size = settings.batch_size
    starts = range(0, len(samples), size)
    found: list[Array] = []
    epochs = settings.local_epochs if local_steps is None else -(-local_steps // max(len(starts), 1))
    for _ in range(epochs):
        order = samples.copy()
        rng.shuffle(order)
        found += [order] if len(starts) == 1 else [order[start : start + size] for start in starts]
        if last_step is not None and len(found) >= last_step:
            break
    return found[:last_step]

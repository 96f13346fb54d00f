"""The base class of all components: frozen, its fields are its options, and its state is declared as slots.

A component answers one question of an edge round (see the packages association, selection, masking, objectives,
compression, aggregation, topology of `methods`, and `planning.schemes`). Whatever must survive a round is a `Slot`: the
driver owns it, hands it in and takes the new value back, so that a restart, another engine or another number of workers
change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from airprune.components.layers import Array, PrunableLayers
from airprune.components.units import UnitGraph, UnitGroup
from airprune.errors import UsageError
from airprune.settings.section import Section

if TYPE_CHECKING:
    from airprune.methods.objectives.base import LocalRun
    from airprune.methods.outcome import GlobalOutcome, Outcome

Values = dict[str, Array]
Memory = Mapping[str, Array]
ReportKind = tuple[str, tuple[int, ...]]
"""dtype and shape of an array that devices report, to be summed over them."""


class Owner(StrEnum):
    """The owner of a slot, whose array has one row for each owner."""

    RUN = "run"
    """One row for the whole run, kept beside the cloud's model, whatever its shape."""
    CLOUD = "cloud"
    """One, at the root of the tree."""
    EDGE = "edge"
    """One for every edge."""
    DEVICE = "device"
    """One for every device; kept in the `DeviceStore`, travels with the device's task."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of the model and its place in the flat state.

    Attributes:
      counted: whether its entries are weights in the sense of Eq. (4); biases, buffers and personal layers are not.
      layer: number of the layer that it belongs to, in the model's own order.
    """

    name: str
    start: int
    stop: int
    counted: bool
    layer: int = 0


def _no_units() -> UnitGraph:
    return UnitGraph(PrunableLayers(()), trouble="its forward pass is not known")


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A model as components see it: its flat layout, but neither its weights nor its framework.

    Attributes:
      num_state: entries of the flat state: parameters and floating buffers.
      num_parameters: entries that are trained; they come first.
      prunable: where the prunable weights lie.
      layers: their matrices.
      tensors: all tensors, in the order of the state.
      num_personal, personal_weights: entries of the layers that stay on the devices, which come first, and how many of
        them are weights: trained, but not counted.
      find_units: follows the model's forward pass for `units`; called on first use.
      num_devices, num_edges, num_antennas: of the network and its stations, for slots with a row for each.
    """

    num_state: int
    num_parameters: int
    prunable: slice
    layers: PrunableLayers
    tensors: tuple[Tensor, ...]
    num_personal: int = 0
    personal_weights: int = 0
    find_units: Callable[[], UnitGraph] = _no_units
    num_devices: int = 1
    num_edges: int = 1
    num_antennas: int = 1

    @cached_property
    def is_weight(self) -> Array:
        """True for entries of the state that are counted weights, Eq. (4).  [num_state]"""
        counted = np.zeros(self.num_state, dtype=bool)
        for tensor in self.tensors:
            counted[tensor.start : tensor.stop] = tensor.counted
        counted.setflags(write=False)
        return counted

    @cached_property
    def units(self) -> UnitGraph:
        """The rows and columns of the prunable matrices that make a unit."""
        return self.find_units()

    @cached_property
    def num_weights(self) -> int:
        """W of Eq. (4)."""
        return int(np.count_nonzero(self.is_weight))

    def on(self, *, num_devices: int, num_edges: int, num_antennas: int = 1) -> ModelShape:
        """The same model on a network of this size."""
        return replace(self, num_devices=num_devices, num_edges=num_edges, num_antennas=num_antennas)

    @property
    def personal(self) -> slice:
        """Place of the layers that stay on the devices."""
        return slice(0, self.num_personal)

    @cached_property
    def num_layers(self) -> int:
        """Layers with trained tensors, which a trained part begins with one of."""
        return 1 + max(tensor.layer for tensor in self.tensors)

    def frozen_below(self, first_trained: int) -> Array:
        """True for entries of the layers below this one: weights, biases and buffers.  [num_state] bool"""
        frozen = np.zeros(self.num_state, dtype=bool)
        for tensor in self.tensors:
            frozen[tensor.start : tensor.stop] = tensor.layer < first_trained
        return frozen

    def frozen_outside(self, first_trained: int, last_trained: int | None = None) -> Array:
        """Returns the same for the layers below `first_trained`, and those above `last_trained` if it is given."""
        frozen = self.frozen_below(first_trained)
        if last_trained is not None:
            for tensor in self.tensors:
                frozen[tensor.start : tensor.stop] |= tensor.layer > last_trained
        return frozen

    def weights_above(self, first_trained: int, last_trained: int | None = None) -> int:
        """Counted weights of this layer and those above it, up to `last_trained` if given: what is trained and sent."""
        last = self.num_layers if last_trained is None else last_trained
        return sum(t.stop - t.start for t in self.tensors if t.counted and first_trained <= t.layer <= last)

    @cached_property
    def prunable_weights(self) -> int:
        """W_fully, or whatever else may be pruned."""
        return self.layers.num_weights

    @cached_property
    def fixed_weights(self) -> int:
        """W_conv, or whatever else is never pruned."""
        return self.num_weights - self.prunable_weights


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One named array of persistent state per owner.

    Attributes:
      name: unique in a run; begins with the component's name, e.g. "top-k.error".
      shape: of one owner's row.
      start: what every entry is in the beginning.
    """

    name: str
    owner: Owner
    shape: Callable[[ModelShape], tuple[int, ...]]
    dtype: str = "<f4"
    start: float = 0.0

    def row(self, shape: ModelShape) -> Array:
        """Returns the initial row of one owner."""
        return np.full(self.shape(shape), self.start, dtype=self.dtype)

    def num_bytes(self, shape: ModelShape) -> int:
        """Returns the size of one row in bytes."""
        return int(np.prod(self.shape(shape), dtype=np.int64)) * np.dtype(self.dtype).itemsize


def all_weights(shape: ModelShape) -> tuple[int, ...]:
    """One entry per counted weight."""
    return (shape.num_weights,)


def whole_state(shape: ModelShape) -> tuple[int, ...]:
    """One entry per entry of the flat state."""
    return (shape.num_state,)


def parameters(shape: ModelShape) -> tuple[int, ...]:
    """One entry per trained parameter."""
    return (shape.num_parameters,)


def per_device(shape: ModelShape) -> tuple[int, ...]:
    """One entry per device of the network."""
    return (shape.num_devices,)


def prunable_weights(shape: ModelShape) -> tuple[int, ...]:
    """One entry per prunable weight."""
    return (shape.prunable_weights,)


class Component(Section):
    """The part that all kinds of components share. An instance is a component with its options; it is frozen.

    Attributes:
      name: as users write it.
      summary: one line for help texts, tables and docs.
      source: where it comes from, e.g. the paper or "as published" / "after …".
      fully_open: options with which it changes nothing: the run equals hierarchical FedAvg bit for bit. None if there
        are none.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    fully_open: ClassVar[Mapping[str, Any] | None] = None

    def __new__(cls, *_: Any, **values: Any) -> Self:
        if not cls.name:
            raise UsageError(
                f"{cls.__name__} is a class to derive from, not a value with functions: class Mine({cls.__name__}): "
                f'name = "mine", options as fields, functions as methods; see docs/your-own.md.'
            )
        check_complete(cls)
        return super().__new__(cls)

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Persistent state that it needs, given its options."""
        return ()

    def upload_bits(self, shape: ModelShape, value_bits: float) -> float:
        """Returns the bits that a device sends for it beside its update, at so many bits for an exact value.

        Called for selections and objectives; a masking returns its own by `charges`.
        """
        return 0.0

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """Returns the slots of run, cloud and edges that an edge round changes; in the driver, once per edge round.

        Called for all components but server optimisers, with the values of all such slots.
        """
        return {}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        """Returns the slots that a global round changes; as `after_edge_round`."""
        return {}

    def overrides(self, method: Callable[..., Any]) -> bool:
        """Returns whether its class overrides a method of its kind, e.g. `masking.overrides(Masking.prepare)`."""
        return getattr(type(self), method.__name__) is not method


def check_complete(kind: type[Component]) -> None:
    """Raises a sentence if a class lacks a method that every member of its kind has."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise UsageError(
            f"{kind.__name__} {kind.name!r} must define {', '.join(missing)}; the base.py of its kind says what to "
            f"expect and to return."
        )


class LocalComponent(Component):
    """A component with a part on the devices: maskings, objectives and selections."""

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        """Returns the device's slots that its local steps change; on the device."""
        return {}

    def report(self, run: LocalRun, before: Memory, after: Memory) -> Values:
        """Returns arrays to be summed over all devices of the round, given the device's slots before and after.

        An array whose name ends in "/" is not summed: `Outcome.sums` has it under that name and the device's number.
        """
        return {}

    def reported(self, shape: ModelShape) -> Mapping[str, ReportKind] | None:
        """Returns what these arrays are, by name; None: not declared: a deployment can bound their size alone."""
        return None

    @property
    def sends_reports(self) -> bool:
        """True if devices report arrays for it beside their updates."""
        return self.overrides(LocalComponent.report) or self.overrides(LocalComponent.reported)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A listed value with functions, without options or state: a kernel, loss or metric.

    Attributes:
      name: as users write it.
      summary: one line for help texts, tables and docs.
      source: where it comes from.
    """

    name: str
    summary: str
    source: str = ""


def paper_shape() -> ModelShape:
    """The paper's CNN on its network: for which memory and bits are shown where no model is at hand.

    A last layer that stays on the devices would have 90 entries.
    """
    layers = PrunableLayers.of([("fc1", 8, 3136), ("fc2", 10, 8)])
    sizes = (
        ("conv1.weight", 288, True),
        ("conv1.bias", 32, False),
        ("conv2.weight", 18_432, True),
        ("conv2.bias", 64, False),
        ("fc1.bias", 8, False),
        ("fc2.bias", 10, False),
        ("fc1.weight", 25_088, True),
        ("fc2.weight", 80, True),
    )
    tensors, start = [], 0
    for name, size, counted in sizes:
        tensors.append(Tensor(name, start, start + size, counted))
        start += size
    return ModelShape(
        num_state=start,
        num_parameters=start,
        prunable=slice(start - layers.num_weights, start),
        layers=layers,
        tensors=tuple(tensors),
        num_personal=90,
        find_units=lambda: UnitGraph(layers, (UnitGroup(0, 8, ((1, np.arange(8)),)),)),
        num_devices=25,
        num_edges=5,
    )

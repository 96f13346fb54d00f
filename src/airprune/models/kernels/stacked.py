"""Gradients of several models of one kind at once: rows of a stack, each with a minibatch of its own.

    y_d = x_d W_dᵀ + b_d        one product for all rows d, where a loop over models pays Python and torch for each

A module is taken apart by tracing it: a chain of the layers in `layers.py`, forwards and backwards without autograd.
Each row's gradient has the bits that `MinibatchLoss` leaves for that model alone. Whether this machine's batched
products have them is tried on the first rows with minibatches of a size, which are computed by autograd, too. If not,
the same chain multiplies row by row, and if that differs, too, rows of this size are computed alone. What is chosen
changes the speed, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F

from airprune.models.catalogue import FlatModel
from airprune.models.kernels import native
from airprune.models.kernels.autograd import MinibatchLoss
from airprune.models.kernels.base import TrainedPart
from airprune.models.kernels.layers import LINE_BYTES, Layer, Place, Stretch, layer_of
from airprune.models.layout import CnnSizes, LocalModel
from airprune.models.losses import CROSS_ENTROPY

if TYPE_CHECKING:
    from airprune.components.units import UnitGraph
    from airprune.models.losses.base import Loss

Array = np.ndarray
Tensor = torch.Tensor

# Of states, gradients and what flows between layers: a larger stack falls out of the caches and gains nothing. Measured
# with 25 devices: rows of 0.4 MB train 2.5 to 3 times as fast as alone, rows of 1.3 MB 1.9 times, rows of 4 MB slower.
STACK_BYTES = 16 * 2**20
FEWEST_ROWS = 4
# That must have the bits of autograd before those of a size are trusted to have them.
TRIED_ROWS = 24


class _Way(Enum):
    """Ways to compute rows: products of all rows in one call, in one call each, or each row by autograd."""

    TOGETHER = 0
    EACH = 1
    ALONE = 2


@dataclass
class _Trial:
    """The way for minibatches of one size that was not found to differ, and on how many rows it agreed."""

    way: _Way = _Way.TOGETHER
    num_agreed: int = 0


class RowModel(LocalModel):
    """One row of a stack, for a device: what it asks of a model, with state and gradient in the stack's memory.

    Attributes:
      loaded: a state that is yet to be copied into the row; None if the row has it. Devices that received the same one
        need no copies of their own for their first gradients.
    """

    def __init__(self, model: FlatModel, state: Array, gradient: Array) -> None:
        super().__init__(model.layout)
        self.model = model
        self.shape = model.shape  # found once for all rows
        self.loaded: Array | None = None
        self._row, self.gradient_array = state, gradient

    @property
    def state_array(self) -> Array:  # type: ignore[override]
        self.settle()
        return self._row

    def load(self, state: Array) -> None:
        self.loaded = state

    def settle(self) -> None:
        """Copies what was loaded into the row, unless it is there."""
        if self.loaded is not None:
            self._row[:] = self.loaded
            self.loaded = None

    def descend(self, learning_rate: float) -> None:
        """w ← w − η g in float32 by the native library; what was loaded gets into the row on the way."""
        source, size = self._row if self.loaded is None else self.loaded, self.num_parameters
        native.add_scaled(self._row[:size], self.gradient_array, -learning_rate, source[:size])
        if self.loaded is not None:
            self._row[size:] = self.loaded[size:]
            self.loaded = None

    def find_units(self) -> UnitGraph:
        return self.model.find_units()

    def cnn_sizes(self) -> CnnSizes | str:
        return self.model.cnn_sizes()

    def begin_training(self) -> None:
        self.model.begin_training()

    def own_randomness(self) -> AbstractContextManager[None]:
        return self.model.own_randomness()

    def start_afresh(self, seed: Callable[[], int], device: str = "cpu") -> None:
        """Nothing in a stack draws or counts."""

    def trained_arrays(self, state: Array) -> dict[str, Array]:
        return self.model.trained_arrays(state)

    def smaller(self, kept: Sequence[Array], sample: Array) -> None:
        """None of its own: devices ask the model that all rows are like."""


class Stack:
    """Rows of models, and their gradients on minibatches of samples that all share.

    Attributes:
      model: what computes one row alone.
    """

    def __init__(self, model: FlatModel, alone: MinibatchLoss, num_rows: int) -> None:
        self.model, self._alone = model, alone
        trained = [part for part in model.parts if part.start < model.num_parameters]
        largest = max(trained, key=lambda part: part.stop - part.start)
        states = _rows(num_rows + 1, model.num_state, model.state.dtype)  # the last one is for rows that are alike
        gradients = _rows(num_rows, model.num_parameters, model.state.dtype, aligned=largest.start)
        places = {part.name: Place.of(part, states, gradients) for part in model.parts}
        self._places = tuple(places.values())
        self._layers = chain_of(model.module, places)
        *own, self._common = states.numpy()
        self.rows = [RowModel(model, state, gradient) for state, gradient in zip(own, gradients.numpy(), strict=True)]
        self._trials: dict[tuple[object, ...], _Trial] = {}
        self._lowest: dict[frozenset[str] | None, int] = {}  # layer that is trained, where the backward pass ends

    def gradients(
        self, first: int, batches: Sequence[Array], parts: Sequence[TrainedPart] | None = None
    ) -> list[float] | None:
        """∇F of so many rows from `first` into their `gradient_array`, each on its minibatch; returns F of each.

        None: these have to be computed alone.

        Args:
          batches: numbers of samples, equally many for each row.
          parts: what each row trains, all of one kind; None for everything.
        """
        alike = self._are_alike(first, first + len(batches))
        kind = None if parts is None else parts[0].kind
        trial = self._trials.setdefault((len(batches[0]), alike, kind), _Trial())
        if trial.way is _Way.ALONE:
            return None
        trained = None
        if parts is not None:
            pairs = zip(self.model.parts, parts[0].tensors, strict=True)
            trained = frozenset(part.name for part, is_trained in pairs if is_trained)
        stretch = Stretch(first, first + len(batches), trial.way is _Way.EACH, alike, trained)
        if trial.num_agreed < TRIED_ROWS:
            return self._tried(stretch, batches, parts, trial)
        return self._computed(stretch, batches, parts)

    def _are_alike(self, first: int, stop: int) -> bool:
        """True if all rows have been loaded with one state, which is then in its place; else each is in its own."""
        rows = self.rows[first:stop]
        loaded = rows[0].loaded
        if loaded is not None and all(row.loaded is loaded for row in rows):
            self._common[:] = loaded
            return True
        for row in rows:
            row.settle()
        return False

    def descend(self, row: int, learning_rate: float) -> None:
        self.rows[row].descend(learning_rate)

    def alone(self, row: int, batch: Array, part: TrainedPart | None = None) -> float:
        """F of a single row, and ∇F into its `gradient_array`, by autograd."""
        self.model.load(self.rows[row].state_array)
        loss = self._alone.gradient(batch, part)
        self.rows[row].gradient_array[:] = self.model.gradient_array
        return loss

    def value(self, row: int, batch: Array) -> float:
        """F of a row."""
        self.model.load(self.rows[row].state_array)
        return self._alone.value(batch)

    def keep_features(self, row: int, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        self.model.load(self.rows[row].state_array)
        return self._alone.keep_features(part, samples, most_bytes)

    def _tried(
        self, stretch: Stretch, batches: Sequence[Array], parts: Sequence[TrainedPart] | None, trial: _Trial
    ) -> list[float]:
        """Computes by autograd, and to compare also by the way that is tried."""
        rows = self.rows[stretch.rows]
        try:
            losses = self._computed(stretch, batches, parts)
        except (RuntimeError, IndexError, ValueError):
            losses = [math.nan] * len(batches)  # if something is wrong with a row, autograd says so
        gradients = [row.gradient_array.tobytes() for row in rows]
        own = [None] * len(batches) if parts is None else parts
        alone = [self.alone(stretch.first + row, *pair) for row, pair in enumerate(zip(batches, own, strict=True))]
        if losses == alone and gradients == [row.gradient_array.tobytes() for row in rows]:
            trial.num_agreed += len(batches)
        else:
            trial.way, trial.num_agreed = _Way(trial.way.value + 1), 0
        return alone

    @torch.no_grad()
    def _computed(
        self, stretch: Stretch, batches: Sequence[Array], parts: Sequence[TrainedPart] | None = None
    ) -> list[float]:
        index = torch.from_numpy(np.concatenate(batches))
        first, values = self._inputs(index, batches, parts)
        for layer in self._layers[first:]:
            values = layer.forward(values, stretch)
        losses, gradient = self._loss(values, self._alone.y.index_select(0, index), stretch)
        last = self._lowest.get(stretch.trained, -1)
        if last < 0:
            last = next(number for number, layer in enumerate(self._layers) if layer.is_trained(stretch))
            self._lowest[stretch.trained] = last
        for number in range(len(self._layers) - 1, last - 1, -1):
            gradient = self._layers[number].backward(gradient, stretch, goes_on=number > last)
        if stretch.trained is not None:
            for place in self._places:
                if place.gradients is not None and not stretch.trains(place):
                    place.stacked(place.gradients)[stretch.rows].zero_()
        return losses

    def _inputs(
        self, index: Tensor, batches: Sequence[Array], parts: Sequence[TrainedPart] | None
    ) -> tuple[int, Tensor]:
        """Returns the first layer to be computed and its inputs: samples, or their features."""
        if parts is None or parts[0].features is None:
            return 0, self._alone.x.index_select(0, index)
        first = next(n for n, layer in enumerate(self._layers) if layer.number >= parts[0].first_trained)
        gathered = []
        for batch, part in zip(batches, parts, strict=True):
            assert part.features is not None  # parts of one kind
            _, (values,) = part.features.values  # of a chain, one tensor
            gathered.append(self._alone.gathered(values, part.features.places(batch)))
        return first, torch.cat(gathered)

    @torch.no_grad()
    def sample_bytes(self) -> int:
        """Bytes of one sample on its way through the layers.

        Raises:
          Unstackable: if it does not get through.
        """
        values = self._alone.x[:1].clone()
        found = values.nbytes
        try:
            for layer in self._layers:
                values = layer.forward(values, Stretch(0, 1, False))
                found += values.nbytes
        except (RuntimeError, ValueError, IndexError) as error:
            raise Unstackable(str(error)) from error
        return found

    def _loss(self, outputs: Tensor, targets: Tensor, stretch: Stretch) -> tuple[list[float], Tensor]:
        """F of each row and its gradient by the outputs."""
        if self._alone.loss.name == CROSS_ENTROPY and outputs.dim() == 2 and targets.dim() == 1:
            logs, size = outputs.log_softmax(1), len(targets) // (stretch.stop - stretch.first)
            if stretch.each or stretch.stop - stretch.first == 1:
                shares = zip(stretch.shares(logs), stretch.shares(targets), strict=True)
                losses = [F.nll_loss(log, target).item() for log, target in shares]
            else:
                losses = _means(F.nll_loss(logs, targets, reduction="none").view(-1, size).numpy())
            gradient = torch.zeros_like(logs)
            gradient.scatter_(1, targets.unsqueeze(1), -1.0 / size)
            return losses, torch._log_softmax_backward_data(gradient, logs, 1, logs.dtype)
        losses, back = [], []
        for own, target in zip(stretch.shares(outputs), stretch.shares(targets), strict=True):
            with torch.enable_grad():
                own = own.detach().requires_grad_()
                loss = self._alone.loss.mean(own, target)
                back.append(torch.autograd.grad(loss, own)[0])
            losses.append(loss.item())
        return losses, torch.cat(back)


def _means(values: Array) -> list[float]:
    """Mean of every row, added in the order in which torch's `nll_loss` adds one: the first by itself, then by 16."""
    columns = np.ascontiguousarray(values.T)
    size = len(columns)
    blocks = [np.add.reduce(columns[start : start + 16], axis=0) for start in range(1, size, 16)]
    rest = blocks.pop() if (size - 1) % 16 else np.zeros_like(columns[0])
    means = (rest + np.add.reduce(blocks, axis=0) if blocks else rest) + columns[0]
    means /= size
    found: list[float] = means.tolist()
    return found


def _rows(number: int, size: int, dtype: torch.dtype, *, aligned: int = 0) -> Tensor:
    """Zeros, of whose rows each has this entry at the start of a cache line."""
    line = LINE_BYTES // dtype.itemsize
    before = -aligned % line
    return torch.zeros(number, -(-(before + size) // line) * line, dtype=dtype)[:, before : before + size]


class Unstackable(Exception):
    """Returns why a module is no chain of layers that a stack knows."""


def chain_of(module: nn.Module, places: dict[str, Place]) -> list[Layer]:
    """The layers of a module, one after another.

    Raises:
      Unstackable: if it is anything else.
    """
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(part, hook) for part in module.modules() for hook in hooks):
        raise Unstackable("something hooks into it")
    if any(True for _ in module.buffers()):
        raise Unstackable("it has buffers")
    if not all(_is_known(part) for part in module.modules()):
        raise Unstackable("a forward pass of the user's own may do more than a trace of it shows")
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception as error:  # whatever a forward pass makes of being traced
        raise Unstackable(f"it cannot be traced ({error})") from error
    layers: list[Layer] = []
    names: list[str] = []
    (start, *nodes) = graph.nodes
    for before, node in zip([start, *nodes], nodes, strict=False):
        if node.all_input_nodes != [before] or len(before.users) != 1 or (node.args and node.args[0] is not before):
            raise Unstackable("its layers are no chain")
        if node.op == "output":
            break
        found = layer_of(node, module, places)
        if found is None:
            raise Unstackable(f"there is no stacked {node.target}")
        layers += [found[0]] if found[0] is not None else []
        names += found[1]
    if sorted(names) != sorted(places):
        raise Unstackable("layers share parameters, or leave some out")
    return layers


def _is_known(part: nn.Module) -> bool:
    """True if its forward pass is torch's or airprune's, which do the same every time."""
    return type(part).__module__.partition(".")[0] in ("torch", "airprune") and "forward" not in vars(part)


def build(model: FlatModel, x: Array, y: Array, *, loss: Loss | None, batch_size: int, num_rows: int) -> Stack | None:
    """Returns a stack of at most so many rows, as fit; None if the model cannot be stacked or is too large."""
    alone = MinibatchLoss(model, x, y, loss=loss)
    try:
        one = Stack(model, alone, 1)
        row_bytes = (
            model.state.element_size() * (model.num_state + model.num_parameters) + batch_size * one.sample_bytes()
        )
    except Unstackable:
        return None
    num_rows = min(num_rows, STACK_BYTES // row_bytes)
    return Stack(model, alone, num_rows) if num_rows >= FEWEST_ROWS else None

"""Minibatch gradients and scores of the paper's CNN in C, and what devices do with flat vectors beside training.

The kernel (paper_cnn.c, paper_cnn.h) is built when airprune is installed, if there is a C compiler. It computes the
same function as `airprune.models.catalogue.PaperCNN` in float32; only rounding differs. All of its instruction sets
give the same bits. Neither it nor the steps that it takes need torch. The functions on flat vectors (flat.h) serve any
model and give the bits of numpy: who calls them falls back on it where there is no kernel.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from airprune.errors import InvalidValue
from airprune.models.kernels.base import Features, Kernel, TrainedPart, visited_again
from airprune.models.layout import LocalModel

try:
    from airprune.models.kernels.native import _paper_cnn
except ImportError as error:
    instruction_sets: list[str] = []
    sources = ""
    is_built = importlib.util.find_spec(f"{__name__}._paper_cnn") is not None
    trouble = f"it cannot be loaded ({error})" if is_built else "it was not built"
else:
    instruction_sets = _paper_cnn.instruction_sets()
    sources = getattr(_paper_cnn, "sources", "unknown")  # a digest of what it was built from
    trouble = "" if instruction_sets else "this CPU has neither AVX2 nor AVX-512"

Array = np.ndarray

# In the order of the kernel's parameters.
_PARAMETERS = tuple(f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias"))
# Of (channels, height, width, hidden, classes): beyond these the kernel refuses, so that its indices fit 31 bits.
_LARGEST = (64, 1024, 1024, 4096, 65536)
_EVERYTHING = 2 ** len(_PARAMETERS) - 1
_NO_PLACES = np.zeros(0, np.int64)


def unsupported(model: LocalModel, x: Array, y: Array) -> str:
    """Reason why this model cannot be trained by the kernel; empty if it can."""
    if trouble:
        return trouble
    sizes = model.cnn_sizes()
    if isinstance(sizes, str):
        return sizes
    trained = {part.name for part in model.parts if part.start < model.num_parameters}
    if set(_PARAMETERS) != trained:
        return "some of the model's parameters are frozen"
    if (model.state_array.dtype, x.dtype, y.dtype) != (np.float32, np.float32, np.int64):
        return "model and images are not in float32 and labels in int64"
    fits = x.ndim == 4 and x.shape[1] == sizes.channels
    if not fits or 64 * (x.shape[2] // 4) * (x.shape[3] // 4) != sizes.fc1_inputs:
        return "the samples do not fit the model"
    shape = *x.shape[1:], sizes.hidden, sizes.classes
    return "the model is too large" if any(n > most for n, most in zip(shape, _LARGEST, strict=True)) else ""


class _PaperCNN:
    """Places of all parameters in the flat vector of a model that the kernel can compute."""

    def __init__(self, model: LocalModel, x: Array, y: Array, *, instruction_set: str | None = None) -> None:
        if problem := unsupported(model, x, y):
            raise InvalidValue(type(self).__name__, "must get the paper's CNN and its images", problem)
        self._instruction_set = instruction_set or instruction_sets[0]
        sizes = model.cnn_sizes()
        assert not isinstance(sizes, str)
        self._shape = (*x.shape[1:], sizes.hidden, sizes.classes)
        starts = {part.name: part.start for part in model.parts}
        self._offsets = tuple(starts[name] for name in _PARAMETERS)
        self._bit_of = tuple(1 << _PARAMETERS.index(part.name) for part in model.parts)
        pruned = {layer.name for layer in model.layers}
        self._prunes_classifier = pruned <= {"fc1.weight", "fc2.weight"}
        self._kept = np.zeros(0, np.uint8)
        self._scratch = np.empty(_paper_cnn.scratch_bytes(*self._shape), np.uint8)
        self._arrays = model.state_array, model.gradient_array, np.ascontiguousarray(x), np.ascontiguousarray(y)


class NativeGradient(_PaperCNN):
    """∇F(w, ξ) of the paper's CNN into `model.gradient_array`.

    Attributes:
      spent_s: None, or where `train_chunk` adds the CPU-seconds of its probes, and of its gradients and steps.  [2]
    """

    spent_s: Array | None = None

    def __init__(self, model: LocalModel, x: Array, y: Array, *, instruction_set: str | None = None) -> None:
        super().__init__(model, x, y, instruction_set=instruction_set)
        self._prunable, self._row_starts = model.prunable, model.layers.row_starts
        self._features = np.zeros(0, np.uint8)

    def __call__(self, batch: Array) -> float:
        """The samples named by `batch`; returns F(w, ξ), their mean loss."""
        arrays = (*self._arrays, batch, self._scratch, self._kept)
        return _paper_cnn.gradient(self._instruction_set, self._shape, self._offsets, *arrays, False)

    def of_part(self, batch: Array, part: TrainedPart) -> float:
        arrays = (*self._arrays, batch, self._scratch, self._kept)
        more: tuple[Any, ...] = ()
        if part.features is not None:
            more = part.features.values, part.features.places(batch), len(part.features.samples)
        return _paper_cnn.gradient(
            self._instruction_set, self._shape, self._offsets, *arrays, False, self._bits(part), *more
        )

    def keep_features(self, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        """Returns the part with room for features, which the first gradient on a sample fills.

        The room is the same for all devices: who begins later overwrites what was there.
        """
        number = self._num_features(part, len(samples), most_bytes)
        if not number:
            return part
        self._make_feature_room(self._bits(part), number)
        return replace(part, features=Features(samples[:number], self._features))

    def of_prunable(self, batch: Array) -> float:
        """The same of the prunable weights; the rest of `gradient_array` may be left zero.

        Where they all are in the fully connected layers, nothing goes back through the convolutions, and what these
        have made of the images is kept: the next gradient on the same minibatch begins there, if they
        are the same. Images and labels must not change in between.
        """
        if not self._prunes_classifier:
            return self(batch)
        self._make_room(len(batch))
        arrays = (*self._arrays, batch, self._scratch, self._kept)
        return _paper_cnn.gradient(self._instruction_set, self._shape, self._offsets, *arrays, True)

    def train_chunk(
        self,
        received: Array,
        batches: Sequence[Sequence[Array]],
        *,
        keep: Sequence[int],
        weights: Sequence[float],
        learning_rate: float,
        total: Array,
        counts: Array,
        parts: Sequence[TrainedPart | None] | None = None,
        most_bytes: int = 0,
    ) -> tuple[list[float], Array] | None:
        """Steps of SGD of some devices, one after the other, from the received model, on the minibatches of each.

        Who may keep fewer than all prunable weights first keeps those that the first minibatch moves most, as
        `largest_moves` chooses them, with whom they are zero and move no more.

        Returns:
          The loss of every minibatch, and ‖w − w ⊙ m‖² of every device. None if something to choose by is not finite:
          then what is in the sums is of no use.

        Args:
          total: c_n times what each has trained is added to it.  [num_state] float64
          counts: the masks of those that have one are added to it.  [num_prunable] int64
          parts: what each trains; None for everything, of one or of all.
          most_bytes: for the features of a device.
        """
        flat = [batch for own in batches for batch in own]
        sizes = [len(batch) for batch in flat]
        if self._prunes_classifier and min(keep) < counts.size:
            self._make_room(max(own[0].size for own in batches))
        losses, lost = np.empty(len(flat)), np.empty(len(batches))
        trained, places, num_places = self._parts_of(batches, parts, most_bytes)
        is_finite = _paper_cnn.train_chunk(
            self._instruction_set,
            self._shape,
            self._offsets,
            *self._arrays,
            np.concatenate(flat),
            self._scratch,
            self._kept,
            received,
            np.cumsum(sizes),
            np.cumsum([len(own) for own in batches]),
            np.array(keep, np.int64),
            self._row_starts,
            np.array(weights, np.float64),
            total,
            counts,
            losses,
            lost,
            trained,
            self._features,
            places,
            num_places,
            self._prunable.start,
            learning_rate,
            self._prunes_classifier,
            self.spent_s,
        )
        return (losses.tolist(), lost) if is_finite else None

    def _parts_of(
        self, batches: Sequence[Sequence[Array]], parts: Sequence[TrainedPart | None] | None, most_bytes: int
    ) -> tuple[Array, Array, int]:
        """Returns the tensors that each device trains, and the places of all samples in its features, if there are.

        Also returns the most places that a device has.
        """
        trained = np.full(len(batches), _EVERYTHING, np.int64)
        if parts is None:
            return trained, _NO_PLACES, 0
        places, numbers = [], [0]
        for device, (own, part) in enumerate(zip(batches, parts, strict=True)):
            place = np.full(sum(map(len, own)), -1, np.int64)
            if part is not None:
                trained[device] = self._bits(part)
                samples = visited_again(own) if part.first_trained else None
                if samples is not None:
                    number = self._num_features(part, len(samples), most_bytes)
                    place = np.searchsorted(samples, np.concatenate(own))
                    place[place >= number] = -1
                    numbers.append(number)
            places.append(place)
        if not max(numbers):
            return trained, _NO_PLACES, 0
        for bits in set(trained.tolist()):
            self._make_feature_room(bits, max(numbers))
        return trained, np.concatenate(places), max(numbers)

    def _bits(self, part: TrainedPart) -> int:
        return sum(bit for bit, is_trained in zip(self._bit_of, part.tensors, strict=True) if is_trained)

    def _num_features(self, part: TrainedPart, num_samples: int, most_bytes: int) -> int:
        """Number of samples whose features fit; 0 if all is trained and there is nothing to keep."""
        bits = self._bits(part)
        per_sample = _paper_cnn.feature_bytes(self._shape, bits, 2**16) // 2**16  # 1 if the lowest layer is trained
        return 0 if per_sample <= 1 else min(num_samples, max(most_bytes - 128, 0) // per_sample)

    def _make_feature_room(self, bits: int, num_samples: int) -> None:
        wanted = _paper_cnn.feature_bytes(self._shape, bits, num_samples)
        if self._features.size < wanted:
            self._features = np.zeros(wanted, np.uint8)
        else:
            self._features[: num_samples + 64] = 0  # which are known

    def _make_room(self, num_images: int) -> None:
        """Makes room for the maps that a probe keeps."""
        wanted = _paper_cnn.kept_bytes(self._shape, num_images)
        if self._kept.size < wanted:
            self._kept = np.zeros(wanted, np.uint8)


class NativeScores(_PaperCNN):
    """Scores of images by the paper's CNN as it is in `model.state_array`."""

    def __call__(self, samples: slice | Array) -> Array:
        """Returns the scores of the classes before softmax, of the samples named.  [num_samples, num_classes]"""
        state, _, x, _ = self._arrays
        images = np.ascontiguousarray(x[samples])
        scores = np.empty((len(images), self._shape[-1]), np.float32)
        _paper_cnn.scores(self._instruction_set, self._shape, self._offsets, state, images, scores, self._scratch)
        return scores


def best_weights(scores: Array, ties: Array, row_starts: Array, keep: int) -> Array | None:
    """The mask of the `keep` highest scores, the best of each row among them; ties by `ties`, then the lower index.

    None if that is not for the kernel: numbers that are not finite, or not in float32.

    Args:
      row_starts: where rows begin, the first at 0; none is empty, and `keep` is no less than their number.
    """
    if trouble or (scores.dtype, ties.dtype) != (np.float32, np.float32):
        return None
    mask = np.empty(scores.size, bool)
    scores, ties = np.ascontiguousarray(scores), np.ascontiguousarray(ties)
    return mask if _paper_cnn.choose(instruction_sets[0], mask, scores, ties, row_starts, keep) else None


def largest_moves(weights: Array, gradient: Array, row_starts: Array, keep: int, learning_rate: float) -> Array | None:
    """`best_weights` of the scores η |∇F| with the ties |w|, without making either."""
    if trouble or (weights.dtype, gradient.dtype) != (np.float32, np.float32) or not np.float32(learning_rate) > 0.0:
        return None
    mask = np.empty(weights.size, bool)
    is_finite = _paper_cnn.choose(instruction_sets[0], mask, gradient, weights, row_starts, keep, learning_rate)
    return mask if is_finite else None


def _flat(name: str) -> Callable[..., Any]:
    """Returns a function of the library on flat vectors, in this CPU's best instruction set; see `trouble`."""
    return _missing if trouble else partial(getattr(_paper_cnn, name), instruction_sets[0])


def _missing(*_: object) -> Any:
    raise RuntimeError(f"The native kernel is missing: {trouble}.")


# (target, values, factor, source): target ← source + factor · values in float32, each entry rounded once as by torch.
add_scaled = _flat("add_scaled")
# (weights, mask): zeroes what the mask does not have, in place; returns ‖w − w ⊙ m‖², added as numpy does in float32.
hold = _flat("hold")
# (values, mask): values ← values ⊙ mask.
multiply = _flat("multiply")
# (total, state, factor): total ← total + factor · state in float64, the product rounded before it is added.
add_state = _flat("add_state")
# (counts, mask): counts ← counts + mask.
add_counts = _flat("add_counts")


def build(model: LocalModel, x: Array, y: Array, **_: object) -> NativeGradient:
    return NativeGradient(model, x, y)


KERNEL = Kernel(name="native", summary="the paper's CNN, in C", unsupported=unsupported, build=build)

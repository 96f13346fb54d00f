"""Lets a Flower client keep to its budget: it sends a share of its weights at few bits each, and stops after its steps.

A train message may have a ConfigRecord `airprune`:

    kept_share   share of the weights that the reply holds; the largest of the received model
    bits         of each of them
    steps        local steps at the most; −1: as many as the app makes
    deadline_s   of the round, for the app's own use
    device       number of the device in the network

`within_budget` is a client mod that obeys it. The reply is really encoded, and its record `airprune` has `sent_bits`,
the length of what was encoded. Both ends know the received model, so which weights are sent takes no bits. The update
Δ = trained − received is quantised by stochastic rounding, unbiased; biases and buffers travel as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from airprune import extras
from airprune.components.component import ModelShape
from airprune.components.units import UnitGraph
from airprune.errors import InvalidValue
from airprune.methods.compression import COMPRESSIONS, Compression
from airprune.methods.compression.base import Message, Wire
from airprune.methods.compression.quantised import Quantised
from airprune.methods.compression.sign import Sign
from airprune.methods.masking.core.masks import choose_mask
from airprune.models.layout import Layout
from airprune.randomness import rng_for

Array = np.ndarray
Arrays = Mapping[str, Array]
Batch = TypeVar("Batch")

RECORD = "airprune"
"""Name of the record in messages and replies."""
MAX_STEPS = "max-steps"
"""Key under which the steps reach the app's own train config."""
UPDATE = "airprune.update"
"""Name of the array with the encoded update, where a reply holds that alone."""
EXACT_BITS = 32
BUFFERS = ("running_mean", "running_var")
"""Arrays of these names, of torch's batch normalisation, are averaged but not trained."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The plan of one device for one round, as its message has it.

    Attributes:
      compression: name and options of the compressor as JSON; empty: by `bits`.
      code: its level, if the planner has chosen one; −1: none.
      coded: whether the reply holds the encoded update alone, for a server that decodes it.
    """

    kept_share: float = 1.0
    bits: int = EXACT_BITS
    steps: int = -1
    deadline_s: float = math.inf
    device: int = 0
    compression: str = ""
    code: int = -1
    coded: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.kept_share <= 1.0:
            raise InvalidValue(f"{RECORD}.kept_share", "must be > 0 and ≤ 1", self.kept_share, "Example: 0.5")
        if self.bits < 1:
            raise InvalidValue(f"{RECORD}.bits", "must be ≥ 1", self.bits, "Example: 8")

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Budget:
        """Reads a record; keys of others are left alone."""
        kinds: dict[str, Callable[[Any], Any]] = {
            "kept_share": float,
            "bits": int,
            "steps": int,
            "deadline_s": float,
            "device": int,
            "compression": str,
            "code": int,
            "coded": bool,
        }
        return cls(**{name: kind(record[name]) for name, kind in kinds.items() if name in record})

    @property
    def record(self) -> dict[str, Any]:
        """The values of a ConfigRecord."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def compressor(self) -> Compression | None:
        """Encoder of the update; None: values travel as they are."""
        if self.compression:
            options = json.loads(self.compression)
            return _unless_exact(COMPRESSIONS[options.pop("name")](**options))
        if self.bits >= EXACT_BITS:
            return None
        if self.bits == 1:
            return Sign(memory=False)
        return Quantised(bits=min(self.bits, 16), memory=False)


def _unless_exact(compression: Compression) -> Compression | None:
    return None if getattr(compression, "format", None) == "exact" else compression


@dataclass(frozen=True, eq=False)
class FlatArrays:
    """The layout of an app's arrays as one vector: weights, of two or more dimensions, can be pruned and quantised.

    Where an app has vectors alone, those are its weights. Arrays of whole numbers and empty ones are not in the vector.

    Attributes:
      shapes: of the arrays in the vector, in the app's order.
      value_bits: of one exact value.
    """

    shapes: Mapping[str, tuple[int, ...]]
    value_bits: int = EXACT_BITS

    @classmethod
    def of(cls, arrays: Arrays) -> FlatArrays:
        found = {name: a for name, a in arrays.items() if np.issubdtype(a.dtype, np.floating) and a.size}
        bits = max((8 * array.itemsize for array in found.values()), default=EXACT_BITS)
        return cls({name: array.shape for name, array in found.items()}, max(bits, EXACT_BITS))

    @cached_property
    def layout(self) -> Layout:
        has_matrices = any(len(shape) > 1 for shape in self.shapes.values())
        seen = {name: shape if has_matrices else (1, math.prod(shape)) for name, shape in self.shapes.items()}
        buffers = [name for name in seen if name.endswith(BUFFERS)]
        weights = [name for name, shape in seen.items() if len(shape) > 1 and name not in buffers]
        return Layout.of(seen, prunable=weights, constants=buffers)

    @cached_property
    def shape(self) -> ModelShape:
        return self.layout.shape(lambda: UnitGraph(self.layout.layers, trouble="an app's forward pass is not known"))

    def flat(self, arrays: Arrays) -> Array:
        """Returns the arrays as one vector.  [num_state] float64"""
        vector = np.empty(self.layout.num_state)
        for part in self.layout.parts:
            part.view(vector)[...] = arrays[part.name].reshape(part.shape)
        return vector

    def arrays(self, vector: Array, like: Arrays) -> dict[str, Array]:
        """Returns the vector as arrays, with the formats of `like`."""
        return {
            part.name: part.view(vector).reshape(self.shapes[part.name]).astype(like[part.name].dtype, order="C")
            for part in self.layout.parts
        }

    def mask(self, received: Array, kept_share: float) -> Array | None:
        """Returns which weights are sent: the largest of the received model, one per row at least; None: all.

        [num_prunable] bool
        """
        layers = self.layout.layers
        keep = max(round(kept_share * layers.num_weights), layers.num_rows)
        if keep >= layers.num_weights:
            return None
        sizes = np.abs(received[self.layout.prunable])
        return choose_mask(sizes, keep=keep, layers=layers, tie_break=sizes)

    def wire(self, code: int = -1) -> Wire:
        """Returns what encoder and decoder share, with the planner's level if it is not negative."""
        wire = Wire.of(self.shape, value_bits=float(self.value_bits))
        return wire if code < 0 else replace(wire, code=code)


def encode(received: Arrays, trained: Arrays, budget: Budget, rng: np.random.Generator) -> bytes:
    """Returns the reply as bytes: what travels as it is, then the update of the kept weights if that is compressed."""
    flat = FlatArrays.of(received)
    before = flat.flat(received)
    mask = flat.mask(before, budget.kept_share)
    replied = {name: trained[name] for name in received}
    plain = b"".join(array[sent].tobytes() for array, sent in _plain(flat, replied, mask, budget))
    if budget.compressor is None:
        return plain
    index = _places(flat, mask)
    update = flat.flat(trained)[index] - before[index]
    return plain + budget.compressor.encode(flat.wire(budget.code), update, _starts(flat, index), rng).payload


def decode(received: Arrays, payload: bytes, budget: Budget) -> tuple[dict[str, Array], Array | None]:
    """Returns (the arrays that a reply holds, which weights it has sent).

    A weight that was not sent has its received value; None: all were sent.  [num_prunable] bool
    """
    flat, start = FlatArrays.of(received), 0
    before = flat.flat(received)
    mask = flat.mask(before, budget.kept_share)
    found = {name: array.copy() for name, array in received.items()}
    for array, sent in _plain(flat, found, mask, budget):
        count = int(np.count_nonzero(sent))
        array[sent] = np.frombuffer(payload, array.dtype, count, start)
        start += count * array.itemsize
    if budget.compressor is not None:
        index, after = _places(flat, mask), flat.flat(found)
        message = Message(payload[start:], 0.0, len(index))
        after[index] += budget.compressor.decode(flat.wire(budget.code), message, _starts(flat, index))
        found |= flat.arrays(after, received)
    return found, mask


def _plain(flat: FlatArrays, arrays: Arrays, mask: Array | None, budget: Budget) -> Iterator[tuple[Array, Array]]:
    """Yields each array that travels as it is, in its own format, and which of its entries are sent."""
    is_sent = np.ones(flat.layout.num_state, dtype=bool)
    if budget.compressor is not None:
        is_sent[flat.layout.prunable] = False
    elif mask is not None:
        is_sent[flat.layout.prunable] = mask
    sent = {part.name: part.view(is_sent).reshape(flat.shapes[part.name]) for part in flat.layout.parts}
    for name, array in arrays.items():
        yield array, sent[name] if name in sent else np.ones(array.shape, dtype=bool)


def _places(flat: FlatArrays, mask: Array | None) -> Array:
    """Returns the places in the vector of the weights that are sent."""
    places = np.arange(flat.layout.prunable.start, flat.layout.prunable.stop)
    return places if mask is None else places[mask]


def _starts(flat: FlatArrays, index: Array) -> Array:
    stops = [tensor.stop for tensor in flat.shape.tensors if tensor.counted]
    return np.concatenate([[0], np.searchsorted(index, stops)])


def within_budget(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
    """Prunes, quantises and counts the reply as the message's record `airprune` says; a client mod of Flower.

        app = ClientApp(mods=[ap.flower.within_budget])

    Steps reach the app as `max-steps` of its train config, see `batches_within`. Without the record, or for a message
    of another kind than train, nothing changes.
    """
    found = message.content.config_records.get(RECORD)
    if found is None or not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    budget, (_, received) = Budget.of(found), _model(message.content)
    if budget.steps >= 0:
        message.content = _with_steps(message.content, budget.steps)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    app = extras.needed("flwr.app", extra="flower", what="ap.flower.within_budget")
    name, trained = _model(reply.content)
    matched, beside = _matched(received, trained)
    if budget.coded and (beside or len(matched) < len(received)):
        rule = "must hold the arrays that were received, in the same shapes and formats"
        got = ", ".join(sorted(beside)) or f"{len(matched)} of {len(received)} arrays"
        raise InvalidValue("within_budget: the reply", rule, got, "Or use a strategy of Flower's at the server")
    base = {key: received[key] for key in matched}
    rng = rng_for(0, "flower-reply", _round_number(message), budget.device)
    payload = encode(base, matched, budget, rng) if base else b""
    if budget.coded:
        arrays = {UPDATE: np.frombuffer(payload, np.uint8)}
    else:
        arrays = trained | (decode(base, payload, budget)[0] if base else {})
    if name is not None:
        reply.content[name] = app.ArrayRecord({key: app.Array(array) for key, array in arrays.items()})
    sent_bits = 8 * (len(payload) + sum(array.nbytes for array in beside.values()))
    reply.content[RECORD] = app.ConfigRecord({"sent_bits": sent_bits, "kept_share": budget.kept_share})
    return reply


def _round_number(message: Any) -> int:
    """Returns the round, as strategies write it into the config or into the group of their messages; else 0."""
    configs = [dict(record) for record in message.content.config_records.values()]
    found = [config["server-round"] for config in configs if "server-round" in config]
    group = str(found[0] if found else message.metadata.group_id)
    return int(group) if group.isdecimal() else 0


def _model(content: Any) -> tuple[str | None, dict[str, Array]]:
    """Returns the name and the arrays of the model in a message: of its array record, which strategies have one of."""
    for name, record in content.array_records.items():
        return name, {key: array.numpy() for key, array in record.items()}
    return None, {}


def _matched(received: Arrays, trained: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns (trained arrays with a received one of the same shape and format, in its order; all others).

    If none is of floating numbers, there is nothing to prune or to quantise.
    """
    same = [
        key
        for key, array in received.items()
        if key in trained and (trained[key].shape, trained[key].dtype) == (array.shape, array.dtype)
    ]
    if not any(np.issubdtype(received[key].dtype, np.floating) for key in same):
        same = []
    return {key: trained[key] for key in same}, {key: array for key, array in trained.items() if key not in same}


def _with_steps(content: Any, steps: int) -> Any:
    """Returns the content with the steps in the app's config; a new one, since messages of a round share theirs."""
    app = extras.needed("flwr.app", extra="flower", what="ap.flower.within_budget")
    records = dict(content.items())
    name = next((key for key in content.config_records if key != RECORD), "config")
    records[name] = app.ConfigRecord({**dict(records.get(name, {})), MAX_STEPS: steps})
    return app.RecordDict(records)


def batches_within(batches: Iterable[Batch], config: Mapping[str, Any]) -> Iterator[Batch]:
    """Yields batches up to the steps of the budget; all of them without one.

        epochs = itertools.chain.from_iterable(loader for _ in range(num_epochs))
        for inputs, labels in ap.flower.batches_within(epochs, message.content["config"]): …

    Args:
      batches: of all epochs of a round.
      config: the train config, into which `within_budget` writes `max-steps`.
    """
    steps = int(config.get(MAX_STEPS, -1))
    return iter(batches) if steps < 0 else islice(batches, steps)

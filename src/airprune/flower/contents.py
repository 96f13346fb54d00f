"""Contents of messages: their size, their numbers, and how they are written to a file and read again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from airprune.flower.air import ModelSize

# The record in messages and replies that is between airprune and a client; a server never sees it.
OWN = "airprune"
_EXAMPLES = {"num-examples", "num_examples"}
_LOSS = re.compile(r"(^|[-_.])loss$")
_ACCURACY = re.compile(r"(^|[-_.])acc(uracy)?$")


def records_of(content: Any, kind: str) -> Iterator[tuple[str, Any]]:
    """Yields the name and the record of all records of a kind: Array, Metric or Config.

    Flower's own views of a content by kind take as long as a small client's call.
    """
    names = (f"{kind}Record", f"{kind}sRecord", "ParametersRecord" if kind == "Array" else "")
    for key, record in content.items():
        if type(record).__name__ in names:
            yield key, record


def arrays_of(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the Flower array of all arrays of a content."""
    for key, record in records_of(content, "Array"):
        for name, array in record.items():
            yield f"{key}.{name}", array


def shape_and_bits(array: Any) -> tuple[tuple[int, ...], int]:
    """Returns the shape of an array and the bits of its values.

    Legacy apps name neither shape nor type beside the bytes, so that those are read; bytes that are no numpy array
    count as they are.
    """
    try:
        item_bytes = np.dtype(array.dtype).itemsize if array.dtype else 0
    except TypeError:
        item_bytes = 0
    if item_bytes:
        shape = tuple(array.shape)
        return shape, 8 * item_bytes * int(np.prod(shape, dtype=np.int64))
    values = values_of(array)
    return values.shape, 8 * values.nbytes


def values_of(array: Any) -> np.ndarray:
    """Returns the values of a Flower array; its bytes, if they are no numpy array."""
    try:
        found: np.ndarray = array.numpy()
    except (TypeError, ValueError):
        found = np.frombuffer(array.data, dtype=np.uint8)
    return found


def model_of(content: Any) -> ModelSize | None:
    """Returns the size of the model that a message carries; None if it has no arrays."""
    arrays = list(arrays_of(content))
    if not arrays:
        return None
    sizes = [(name, *shape_and_bits(array)) for name, array in arrays]
    return ModelSize(tuple((name, shape) for name, shape, _ in sizes), float(sum(bits for *_, bits in sizes)))


def reply_bits(content: Any) -> tuple[float, int]:
    """Returns (bits, entries) of a reply's arrays; bits as the client says that it has sent them, if it does."""
    own = content.get(OWN)
    sizes = [shape_and_bits(array) for name, array in arrays_of(content) if not name.startswith(f"{OWN}.")]
    weights = sum(int(np.prod(shape, dtype=np.int64)) for shape, _ in sizes)
    if own is not None and "sent_bits" in own:
        return float(own["sent_bits"]), weights
    return float(sum(bits for _, bits in sizes)), weights


def numbers_of(content: Any) -> dict[str, float]:
    """Returns the single numbers in metrics and config of a content, by their names."""
    found: dict[str, float] = {}
    for kind in ("Config", "Metric"):
        for key, record in records_of(content, kind):
            if key == OWN:
                continue
            for name, value in record.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found[name] = value
    return found


def num_examples(content: Any) -> int:
    """Returns the number of examples that a reply names; 0 if it names none."""
    return examples_in(numbers_of(content))


def examples_in(numbers: Mapping[str, float]) -> int:
    """Returns the number of examples among a reply's numbers; 0 if there is none."""
    return next((int(value) for name, value in numbers.items() if name in _EXAMPLES), 0)


def loss_in(numbers: Mapping[str, float]) -> float:
    """Returns the loss among a reply's numbers; NaN if there is none."""
    return next((float(value) for name, value in numbers.items() if _LOSS.search(name)), float("nan"))


def mean_numbers(contents: Iterable[Any]) -> dict[str, float]:
    """Returns the means of the numbers in replies, weighted by their examples; of those that all replies have."""
    rows = [(max(examples_in(numbers), 0), numbers) for numbers in map(numbers_of, contents)]
    if not rows:
        return {}
    weights = np.array([weight for weight, _ in rows], dtype=np.float64)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(rows), 1.0 / len(rows))
    names = [name for name in rows[0][1] if name not in _EXAMPLES and all(name in row for _, row in rows)]
    return {name: float(np.dot(weights, [row[name] for _, row in rows])) for name in names}


def as_metrics(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Returns an app's numbers under the names of records: test_accuracy, test_loss, others as `test_` and theirs."""
    found: dict[str, float] = {}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        plain = re.sub(r"\W+", "_", name).strip("_").lower()
        known = "test_accuracy" if _ACCURACY.search(name) else "test_loss" if _LOSS.search(name) else ""
        found.setdefault(known if known and known not in found else f"test_{plain.removeprefix('test_')}", float(value))
    return found


def digest(messages: Iterable[Any]) -> str:
    """Returns a digest of what messages say to whom; times and numbers of the messages themselves do not count."""
    found, known = hashlib.sha256(), dict[int, bytes]()
    for message in messages:
        found.update(f"{message.metadata.dst_node_id} {message.metadata.message_type}\0".encode())
        for key, record in records_of(message.content, "Array"):
            if id(record) not in known:  # most messages of an exchange carry the same one
                known[id(record)] = _record_digest(record)
            found.update(key.encode() + known[id(record)])
        for key, record in records_of(message.content, "Config"):
            found.update(repr((key, sorted(record.items()))).encode())
    return found.hexdigest()


def _record_digest(record: Any) -> bytes:
    found = hashlib.sha256()
    for name, array in record.items():
        found.update(name.encode() + array.data)
    return found.digest()


class Payload:
    """Bytes of arrays one after the other, as a file has them, and their SHA-256."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._digest, self._end = hashlib.sha256(), 0

    def add(self, data: bytes) -> list[int]:
        """Adds bytes; returns where they begin and end."""
        self.parts.append(data)
        self._digest.update(data)
        start, self._end = self._end, self._end + len(data)
        return [start, self._end]

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def write(content: Any, payload: Payload) -> list[list[Any]]:
    """Adds the bytes of a content's arrays to a payload, and returns the rest as plain JSON."""
    rows: list[list[Any]] = []
    for key, record in content.items():
        kind = type(record).__name__
        if kind in ("ArrayRecord", "ParametersRecord"):
            entries = [
                [name, array.dtype, list(array.shape), array.stype, payload.add(array.data)]
                for name, array in record.items()
            ]
            rows.append([key, "arrays", entries])
        else:
            values = {name: _plain(value) for name, value in record.items()}
            rows.append([key, "metrics" if kind.startswith("Metric") else "config", values])
    return rows


def read(rows: list[list[Any]], payload: memoryview) -> Any:
    """Returns the content that `write` has written."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    content = RecordDict()
    for key, kind, values in rows:
        if kind == "arrays":
            found = {
                name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=bytes(payload[slice(*place)]))
                for name, dtype, shape, stype, place in values
            }
            content[key] = ArrayRecord(found)
        else:
            record = MetricRecord() if kind == "metrics" else ConfigRecord()
            for name, value in values.items():
                record[name] = _value(value)
            content[key] = record
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return [_value(entry) for entry in value] if isinstance(value, list) else value

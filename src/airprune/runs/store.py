"""Persists the state of devices from round to round on disk, so that memory does not grow with the fleet.

A slot's rows lie in files of about a megabyte, one per block of devices and version; in smaller ones where most devices
never write, so that a device brings few others with it. A file that a checkpoint names is
never changed: `put` gathers changed blocks beside it, `commit` gives them their final names and returns the table that
the next checkpoint must hold, and once that checkpoint is in place `forget_unnamed` removes the older files. A
kill at any moment thus leaves all blocks of the last checkpoint as they were. Devices that never wrote have no file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import urllib.parse
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.components.component import ModelShape, Owner, Slot
from airprune.errors import InvalidValue, WorkFailed
from airprune.runs.lines import sentence_if_unwritable

Array = np.ndarray
Table = dict[str, Any]
Places = Array | slice
_Key = tuple[str, int]  # name of the slot, number of the block

BLOCK_BYTES = 2**20
SPARSE_BLOCK_BYTES = 2**17
CACHE_BYTES = 16 * 2**20
MAX_BYTES = 64 * 10**9

# A store is sparse if not more than one in so many devices can ever write.
_SPARSE = 4
_STAGED = "staged"
_MAX_NAME_LENGTH = 120


@dataclass(frozen=True)
class _Rows:
    """The blocks into which one slot's rows are cut."""

    slot: Slot
    shape: tuple[int, ...]
    num_bytes: int
    num_devices: int
    most_writers: int

    @cached_property
    def per_block(self) -> int:
        is_sparse = self.most_writers * _SPARSE <= self.num_devices
        wanted_bytes = SPARSE_BLOCK_BYTES if is_sparse else BLOCK_BYTES
        return min(max(1, wanted_bytes // max(1, self.num_bytes)), self.num_devices)

    @property
    def most_rows(self) -> int:
        """The number of rows in all blocks, if every device that writes is in another one."""
        return min(self.most_writers * self.per_block, self.num_devices)

    @cached_property
    def file_name(self) -> str:
        """A file name that is safe in every file system; two slots never share one."""
        name = urllib.parse.quote(self.slot.name, safe="")
        if len(name) <= _MAX_NAME_LENGTH:
            return name
        return f"{name[:_MAX_NAME_LENGTH]}~{hashlib.sha256(self.slot.name.encode()).hexdigest()[:16]}"

    def num_rows(self, block: int) -> int:
        """Returns the number of rows of a block; the last one may be shorter."""
        return min(self.per_block, self.num_devices - block * self.per_block)

    def started(self, num_rows: int) -> Array:
        return np.full((num_rows, *self.shape), self.slot.start, dtype=self.slot.dtype)

    def layout(self) -> list[Any]:
        """Returns the facts that must be equal for a file to be read."""
        return [self.slot.dtype, list(self.shape), self.per_block, self.num_devices]


class DeviceStore:
    """The slots of all devices.

    Args:
      folder: where blocks lie; made when the first one is written.
      slots: those of other owners are passed over.
      table: what the last checkpoint holds.
      max_bytes: of all rows; by default MAX_BYTES.
      most_writers: how many devices can come to write; by default all.
    """

    def __init__(
        self,
        folder: Path,
        slots: Sequence[Slot],
        shape: ModelShape,
        num_devices: int,
        table: Table | None = None,
        *,
        max_bytes: int | None = None,
        most_writers: int | None = None,
    ) -> None:
        self._folder = folder
        own = [slot for slot in slots if slot.owner is Owner.DEVICE]
        writers = num_devices if most_writers is None else min(most_writers, num_devices)
        self._rows = {
            slot.name: _Rows(slot, slot.shape(shape), slot.num_bytes(shape), num_devices, writers) for slot in own
        }
        self._named: dict[_Key, tuple[int, int]] = {}  # version and checksum, by what the checkpoint says
        self._staged: dict[_Key, int] = {}  # checksum, of what has been put since
        self._cache: OrderedDict[_Key, Array] = OrderedDict()
        self._dirty: set[_Key] = set()  # of the cache: not on disk yet
        self._replaced: list[Path] | None = None  # files that a commit has replaced; None: not searched yet
        self._cached_bytes = 0
        self.restore(table or {})
        self._check_room(MAX_BYTES if max_bytes is None else max_bytes)

    def take(self, devices: Sequence[int] | Array) -> dict[str, Array]:
        """Returns a copy of these devices' rows, by slot.  [len(devices), *slot.shape]"""
        places = np.asarray(devices, dtype=np.int64)
        found = {}
        for name, rows in self._rows.items():
            found[name] = taken = np.empty((len(places), *rows.shape), dtype=rows.slot.dtype)
            for block, where, row in _by_block(places, rows):
                content = self._block((name, block))
                taken[where] = rows.slot.start if content is None else content[row]
        return found

    def put(self, devices: Sequence[int] | Array, memory: Mapping[str, Array]) -> None:
        """Replaces these devices' rows; each device at most once."""
        places = np.asarray(devices, dtype=np.int64)
        for name, rows in self._rows.items():
            given = np.asarray(memory[name])
            if given.shape != (len(places), *rows.shape):
                rule = f"must have shape {(len(places), *rows.shape)}"
                raise InvalidValue(f"DeviceStore.put({name!r})", rule, given.shape)
            for block, where, row in _by_block(places, rows):
                rows_given = given[where]
                self._writable((name, block), num_rows=len(rows_given))[row] = rows_given

    def commit(self, version: int) -> Table:
        """Gives changed blocks their final names; returns the table for the next checkpoint. Versions must grow."""
        latest = max((named for named, _ in self._named.values()), default=-1)
        if version <= latest:
            raise InvalidValue("DeviceStore.commit(version)", f"must be > {latest}", version)
        for key in sorted(self._dirty):
            self._stage(key)
        for key, checksum in self._staged.items():
            with files.open_to_read(self._path(key, _STAGED), inside=self._folder.parent) as file:
                os.fsync(file.fileno())
            self._path(key, _STAGED).replace(self._path(key, version))
            if self._replaced is not None and key in self._named:
                self._replaced.append(self._path(key, self._named[key][0]))
            self._named[key] = (version, checksum)
        self._staged = {}
        return self.table()

    def table(self) -> Table:
        """Returns plain JSON: by slot, its layout and {block: [version, checksum]}."""
        if not self._rows:
            return {}
        blocks: dict[str, dict[str, list[int]]] = {name: {} for name in self._rows}
        for (name, block), (version, checksum) in sorted(self._named.items()):
            blocks[name][str(block)] = [version, checksum]
        return {name: {"layout": rows.layout(), "blocks": blocks[name]} for name, rows in self._rows.items()}

    def restore(self, table: Table) -> None:
        """Returns to the state of a checkpoint; later changes are dropped."""
        if table and table.keys() != self._rows.keys():
            raise WorkFailed(
                f"{self._folder} holds the state of {', '.join(table) or 'nothing'}, but these components keep "
                f"{', '.join(self._rows) or 'nothing'}; resume with the components of before."
            )
        named: dict[_Key, tuple[int, int]] = {}
        for name, given in table.items():
            if given["layout"] != self._rows[name].layout():
                raise WorkFailed(f"{self._folder} holds {name} of another model or fleet; resume with the same ones.")
            named |= {(name, int(block)): (int(entry[0]), int(entry[1])) for block, entry in given["blocks"].items()}
        self._named, self._staged, self._dirty, self._replaced = named, {}, set(), None
        self._cache.clear()
        self._cached_bytes = 0

    def forget_unnamed(self) -> None:
        """Deletes all blocks but those of the last commit, once the checkpoint that names them is in place.

        Looks through the folder once, for what a killed run has left; from then on it knows what was replaced.
        """
        if not self._rows or not self._folder.is_dir() or self._folder.is_symlink():
            return
        for path in self._left_over() if self._replaced is None else self._replaced:
            with contextlib.suppress(OSError):
                path.unlink()
        self._replaced = []

    def _left_over(self) -> list[Path]:
        kept = {self._path(key, version).name for key, (version, _) in self._named.items()}
        kept |= {self._path(key, _STAGED).name for key in self._staged}
        return [path for path in self._folder.glob("*.block") if path.name not in kept]

    def _block(self, key: _Key) -> Array | None:
        """Returns a block, which must not be changed; None if no device of it ever wrote."""
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if key in self._staged:
            return self._keep(key, self._read(key, _STAGED, self._staged[key]))
        if key in self._named:
            return self._keep(key, self._read(key, *self._named[key]))
        return None

    def _writable(self, key: _Key, num_rows: int) -> Array:
        """Returns a block to write so many rows of; it need not be read if that is all of them."""
        rows = self._rows[key[0]]
        is_read = key in self._cache or num_rows < rows.num_rows(key[1])
        block = self._block(key) if is_read else None
        if block is None:
            block = self._keep(key, rows.started(rows.num_rows(key[1])))
        self._dirty.add(key)
        return block

    def _keep(self, key: _Key, block: Array) -> Array:
        """Puts a block into the cache; the least recently used blocks leave it."""
        self._cache[key] = block
        self._cached_bytes += block.nbytes
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            oldest = next(iter(self._cache))
            if oldest in self._dirty:
                self._stage(oldest)
            self._cached_bytes -= self._cache.pop(oldest).nbytes
        return block

    def _stage(self, key: _Key) -> None:
        """Writes a changed block under a name that no checkpoint knows."""
        block, inside = self._cache[key], self._folder.parent
        with sentence_if_unwritable(inside):
            if not self._staged:
                inside.mkdir(parents=True, exist_ok=True)
                files.make_folder(self._folder)
            path = self._path(key, _STAGED)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(files.open_descriptor(path, flags, inside=inside), "wb", buffering=0) as file:
                left = _bytes_of(block)
                while left:
                    left = left[file.write(left) :]
        self._staged[key] = zlib.crc32(_bytes_of(block))
        self._dirty.discard(key)

    def _read(self, key: _Key, version: int | str, checksum: int) -> Array:
        rows, path = self._rows[key[0]], self._path(key, version)
        shape = (rows.num_rows(key[1]), *rows.shape)
        block = np.empty(shape, dtype=rows.slot.dtype)
        try:
            with files.open_to_read(path, inside=self._folder.parent) as file:
                is_full = file.readinto(_bytes_of(block)) == block.nbytes and not file.read(1)
        except OSError as error:
            raise WorkFailed(f"{path} cannot be read: {error.strerror}; start over in another folder.") from None
        if not is_full or zlib.crc32(_bytes_of(block)) != checksum:
            raise WorkFailed(f"{path} is not what the run wrote; restore it or start over in another folder.")
        return block

    def _path(self, key: _Key, version: int | str) -> Path:
        return self._folder / f"{self._rows[key[0]].file_name}.{key[1]}.{version}.block"

    def _check_room(self, max_bytes: int) -> None:
        """Refuses beforehand what would not fit: every block may exist twice while a save goes on."""
        if not self._rows:
            return
        sizes = {name: rows.num_bytes * rows.most_rows for name, rows in self._rows.items()}
        total, largest = sum(sizes.values()), max(sizes, key=lambda name: sizes[name])
        what = f"The memory of {next(iter(self._rows.values())).most_writers:,} devices, most of it for {largest!r},"
        if total > max_bytes:
            raise InvalidValue(
                what,
                f"must be ≤ {max_bytes / 1e9:,.1f} GB",
                f"{total / 1e9:,.1f} GB",
                "Fewer devices, a smaller model or a component without memory take less.",
            )
        place = next(path for path in (self._folder.absolute(), *self._folder.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(place).free
        there = sum(self._rows[name].num_rows(block) * self._rows[name].num_bytes for name, block in self._named)
        if free < 2 * total - there:
            raise WorkFailed(
                f"{what} needs {(2 * total - there) / 1e9:,.2f} GB of free disk, got {free / 1e9:,.2f} GB in {place}; "
                "choose a folder on another disk, fewer devices or a component without memory."
            )


def _bytes_of(block: Array) -> memoryview:
    return block.reshape(-1).view(np.uint8).data


def _by_block(devices: Array, rows: _Rows) -> Iterator[tuple[int, Places, Places]]:
    """Yields (block, places in `devices`, rows within the block), so that each block is touched once."""
    if len(devices) == 0:
        return
    if devices.min() < 0 or devices.max() >= rows.num_devices:
        raise InvalidValue("DeviceStore devices", f"must lie in 0 … {rows.num_devices - 1}", devices.tolist()[:5])
    blocks = devices // rows.per_block
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        where = order[start:stop]
        yield int(blocks[where[0]]), _slice_of(where), _slice_of(devices[where] % rows.per_block)


def _slice_of(places: Array) -> Places:
    """Returns neighbours as a slice, which numpy copies once instead of twice."""
    if (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places

"""The memory of devices: what was put is what is taken, on disk, whole, and at a price that does not grow."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from airprune import files
from airprune.components.component import Owner, Slot
from airprune.errors import InvalidValue, WorkFailed
from airprune.runs import checkpoint, store
from airprune.runs.store import DeviceStore

NUM_DEVICES = 10
SHAPE = None  # these slots do not ask for the model


def slot(name: str = "top-k.error", shape: tuple[int, ...] = (6,), **changes) -> Slot:
    return Slot(**{"name": name, "owner": Owner.DEVICE, "shape": lambda _: shape, **changes})


ERROR, VELOCITY = slot(), slot("momentum.velocity", (2, 3), dtype="<f8", start=-1.5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Four devices to a block of the first slot, two to one of the second; two blocks in memory."""
    monkeypatch.setattr(store, "BLOCK_BYTES", 4 * 6 * 4)
    monkeypatch.setattr(store, "CACHE_BYTES", 2 * 4 * 6 * 4)


def opened(folder: Path, *slots: Slot, table=None, num_devices: int = NUM_DEVICES, **options) -> DeviceStore:
    return DeviceStore(folder / "memory", slots or (ERROR, VELOCITY), SHAPE, num_devices, table, **options)


def drawn(rng: np.random.Generator, devices) -> dict[str, np.ndarray]:
    return {
        ERROR.name: rng.normal(size=(len(devices), 6)).astype("<f4"),
        VELOCITY.name: rng.normal(size=(len(devices), 2, 3)),
    }


def blocks(folder: Path) -> list[Path]:
    return sorted((folder / "memory").iterdir()) if (folder / "memory").exists() else []


def test_devices_that_never_wrote_start_as_the_slot_says_without_a_file(tmp_path):
    found = opened(tmp_path).take([7, 0])
    assert found[ERROR.name].tolist() == [[0.0] * 6] * 2 and found[ERROR.name].dtype == "<f4"
    assert found[VELOCITY.name].tolist() == [[[-1.5] * 3] * 2] * 2
    assert blocks(tmp_path) == []


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_puts_takes_and_commits_gives_what_plain_arrays_give(tmp_path, small_blocks, seed):
    """The plain arrays are the independent method; every so often the store is opened again from its table."""
    rng = np.random.default_rng(seed)
    memory = opened(tmp_path)
    plain = memory.take(range(NUM_DEVICES))
    for version in range(30):
        for _ in range(rng.integers(0, 4)):
            devices = rng.permutation(NUM_DEVICES)[: rng.integers(0, NUM_DEVICES + 1)]
            news = drawn(rng, devices)
            memory.put(devices, news)
            for name in plain:
                plain[name][devices] = news[name]
        devices = rng.integers(0, NUM_DEVICES, size=5)  # also twice the same
        for name, rows in memory.take(devices).items():
            assert np.array_equal(rows, plain[name][devices])
        table = json.loads(json.dumps(memory.commit(version)))
        memory.forget_unnamed()
        if rng.random() < 0.3:
            memory = opened(tmp_path, table=table)
    for name, rows in opened(tmp_path, table=table).take(range(NUM_DEVICES)).items():
        assert rows.tobytes() == plain[name].tobytes()


def test_what_is_taken_is_a_copy(tmp_path, small_blocks):
    memory = opened(tmp_path)
    memory.put([3], {name: rows + 1 for name, rows in memory.take([3]).items()})
    memory.take([3])[ERROR.name][:] = 99
    assert memory.take([3])[ERROR.name].tolist() == [[1.0] * 6]


def test_a_block_that_a_checkpoint_names_is_never_changed(tmp_path, small_blocks):
    memory, rng = opened(tmp_path), np.random.default_rng(0)
    memory.put(range(NUM_DEVICES), drawn(rng, range(NUM_DEVICES)))
    table = memory.commit(1)
    before = {path: path.read_bytes() for path in blocks(tmp_path)}
    for version in (2, 3):
        memory.put(range(NUM_DEVICES), drawn(rng, range(NUM_DEVICES)))
        memory.commit(version)
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(InvalidValue, match="must be > 3, got 3"):
        memory.commit(3)
    memory.restore(table)
    first = opened(tmp_path, table=table).take(range(NUM_DEVICES))
    assert all(np.array_equal(rows, first[name]) for name, rows in memory.take(range(NUM_DEVICES)).items())
    memory.forget_unnamed()
    assert {path: path.read_bytes() for path in blocks(tmp_path)} == before


def test_only_changed_blocks_are_written_anew(tmp_path, small_blocks):
    memory = opened(tmp_path, ERROR)
    memory.put(range(NUM_DEVICES), {ERROR.name: np.ones((NUM_DEVICES, 6))})
    memory.commit(1)
    memory.put([5], {ERROR.name: np.full((1, 6), 2.0)})
    memory.commit(2)
    memory.forget_unnamed()
    names = [path.name for path in blocks(tmp_path)]
    assert names == ["top-k.error.0.1.block", "top-k.error.1.2.block", "top-k.error.2.1.block"]


def test_without_slots_of_devices_there_is_no_folder_and_no_byte(tmp_path):
    shared = slot("prunefl.importance", owner=Owner.CLOUD)
    memory = DeviceStore(tmp_path / "memory", [shared], SHAPE, 10**12)
    memory.put([1, 2], {})
    assert memory.take([1, 2]) == {} and memory.commit(1) == {}
    memory.forget_unnamed()
    assert list(tmp_path.iterdir()) == []


# Kills.


class Killed(BaseException):
    pass


class Faults:
    """Kills the process, in effect, at the wanted one of all moments at which a file changes."""

    def __init__(self, monkeypatch, at: int | None) -> None:
        self.count, self.at = 0, at
        for owner, name in ((files.os, "fsync"), (files.os, "replace"), (Path, "replace"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))
        monkeypatch.setattr(files, "open_descriptor", self._watched(files.open_descriptor))

    def _watched(self, call):
        def watched(*arguments, **options):
            self.count += 1
            if self.count - 1 == self.at:
                raise Killed
            return call(*arguments, **options)

        return watched


def rounds(folder: Path, *, until: int = 3) -> None:
    """A run in small: rounds whose memory depends on all rounds before, saved as a run folder saves."""
    saved = folder / "state.safetensors"
    model, done, table = np.zeros(6), 0, None
    if saved.exists():
        arrays, facts = checkpoint.read(saved)
        model, done, table = arrays["model"], facts["done"], facts["memory"]
    memory = opened(folder, table=table)
    while done < until:
        rng = np.random.default_rng(done)
        present = np.flatnonzero(rng.random(NUM_DEVICES) < 0.6)
        for chunk in np.array_split(present, 3):
            old, news = memory.take(chunk), drawn(rng, chunk)
            memory.put(chunk, {name: 0.5 * old[name] + news[name] for name in old})
            model = model + old[ERROR.name].sum(0)
        done += 1
        facts = {"done": done, "memory": memory.commit(done)}
        checkpoint.write(saved, {"model": model}, facts)
        memory.forget_unnamed()


def outcome(folder: Path) -> tuple[bytes, ...]:
    arrays, facts = checkpoint.read(folder / "state.safetensors")
    memory = opened(folder, table=facts["memory"]).take(range(NUM_DEVICES))
    return arrays["model"].tobytes(), *(rows.tobytes() for rows in memory.values())


def test_a_kill_at_any_moment_ends_in_the_same_bytes(tmp_path, small_blocks, monkeypatch, tally):
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)  # a kill does not ask for it, and it is slow
    (tmp_path / "whole").mkdir()
    with monkeypatch.context() as patched:
        faults = Faults(patched, None)
        rounds(tmp_path / "whole")
        num_moments = faults.count
    expected, left = outcome(tmp_path / "whole"), len(blocks(tmp_path / "whole"))
    assert num_moments > 50
    for at in range(num_moments):
        folder = tmp_path / f"killed-{at}"
        folder.mkdir()
        with monkeypatch.context() as patched, pytest.raises(Killed):
            Faults(patched, at)
            rounds(folder)
        rounds(folder)
        assert outcome(folder) == expected, at
        assert len(blocks(folder)) >= left
        shutil.rmtree(folder)
    tally("kills", num_moments)


def test_what_a_killed_save_left_goes_with_the_next_one(tmp_path, small_blocks):
    (tmp_path / "run").mkdir()
    rounds(tmp_path / "run", until=1)
    memory = opened(tmp_path / "run", table=checkpoint.read(tmp_path / "run" / "state.safetensors")[1]["memory"])
    memory.put(range(NUM_DEVICES), drawn(np.random.default_rng(0), range(NUM_DEVICES)))
    memory.commit(99)  # and then the process dies
    rounds(tmp_path / "run")
    (tmp_path / "whole").mkdir()
    rounds(tmp_path / "whole")
    assert [path.name for path in blocks(tmp_path / "run")] == [path.name for path in blocks(tmp_path / "whole")]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


# What is refused.


@pytest.fixture
def written(tmp_path, small_blocks):
    memory = opened(tmp_path)
    memory.put(range(NUM_DEVICES), drawn(np.random.default_rng(0), range(NUM_DEVICES)))
    return memory.commit(1)


@pytest.mark.parametrize("bit", [0, 100, -1])
def test_a_flipped_bit_in_a_block_is_refused_when_it_is_read(tmp_path, written, bit):
    block = tmp_path / "memory" / "top-k.error.1.1.block"
    content = bytearray(block.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    block.write_bytes(content)
    memory = opened(tmp_path, table=written)
    memory.take([0])
    with pytest.raises(WorkFailed, match=r"top-k\.error\.1\.1\.block is not what the run wrote; restore it or start"):
        memory.take([5])


@pytest.mark.parametrize("trouble", ["short", "long", "gone", "link", "folder is a link", "exchanged"])
def test_a_block_that_is_not_the_one_that_was_written_is_refused(tmp_path, written, trouble):
    block = tmp_path / "memory" / "top-k.error.1.1.block"
    content = block.read_bytes()
    if trouble == "short":
        block.write_bytes(content[:-1])
    elif trouble == "long":
        block.write_bytes(content + b"\0")
    elif trouble == "gone":
        block.unlink()
    elif trouble == "link":
        block.rename(tmp_path / "elsewhere")
        block.symlink_to(tmp_path / "elsewhere")
    elif trouble == "folder is a link":
        (tmp_path / "memory").rename(tmp_path / "elsewhere")
        (tmp_path / "memory").symlink_to(tmp_path / "elsewhere")
    else:
        shutil.copy(block.with_name("top-k.error.0.1.block"), block)
    with pytest.raises(WorkFailed, match=r"top-k\.error\.1\.1\.block (is not what|cannot be read)"):
        opened(tmp_path, table=written).take([5])


def test_nothing_is_written_through_links(tmp_path, small_blocks):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "memory").symlink_to(tmp_path / "elsewhere")
    memory = opened(tmp_path, ERROR)
    with pytest.raises(WorkFailed, match="was not written: memory is a link"):
        memory.put([0, 4, 8], {ERROR.name: np.ones((3, 6))})  # more than stays in memory
    memory.forget_unnamed()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("slots", "num_devices", "words"),
    [
        ([ERROR], NUM_DEVICES, "holds the state of top-k.error, momentum.velocity, but these components keep"),
        ([ERROR, slot(VELOCITY.name, (6,))], NUM_DEVICES, "holds momentum.velocity of another model or fleet"),
        ([ERROR, VELOCITY], 11, "holds top-k.error of another model or fleet"),
    ],
)
def test_memory_of_other_components_models_or_fleets_is_refused(tmp_path, written, slots, num_devices, words):
    with pytest.raises(WorkFailed, match=words):
        opened(tmp_path, *slots, table=written, num_devices=num_devices)


def test_what_would_not_fit_is_refused_beforehand_naming_the_slot(tmp_path, monkeypatch):
    large = slot("scaffold.variate", (1000,))
    with pytest.raises(InvalidValue, match=r"10 devices, most of it for 'scaffold.variate', must be ≤ 0.0 GB"):
        opened(tmp_path, ERROR, large, max_bytes=40_000)
    opened(tmp_path, ERROR, large, max_bytes=40_240)  # 4 bytes per entry, 10 devices
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 2 * 40_240 - 1))
    with pytest.raises(WorkFailed, match=r"'scaffold.variate', needs .* GB of free disk, got .*; choose a folder"):
        opened(tmp_path, ERROR, large)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 2 * 40_240))
    opened(tmp_path, ERROR, large)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("devices", [[-1], [NUM_DEVICES], [0, 99]])
def test_devices_that_do_not_exist_are_refused(tmp_path, devices):
    with pytest.raises(InvalidValue, match=r"must lie in 0 … 9"):
        opened(tmp_path).take(devices)


def test_a_wrong_shape_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match=r"top-k.error'\) must have shape \(2, 6\), got \(1, 6\)"):
        opened(tmp_path, ERROR).put([1, 2], {ERROR.name: np.zeros((1, 6))})


@pytest.mark.parametrize("names", [["../../x", "..%2F..%2Fx"], ["a/b", "a b"], ["ü" * 90, "ü" * 91], ["\0", "."]])
def test_any_name_is_safe_in_a_file_name_and_no_two_share_one(tmp_path, names):
    memory = opened(tmp_path, *map(slot, names))
    memory.put([1], {name: np.full((1, 6), i) for i, name in enumerate(names)})
    table = memory.commit(1)
    assert len(blocks(tmp_path)) == 2 and [path.name for path in tmp_path.iterdir()] == ["memory"]
    for i, rows in enumerate(opened(tmp_path, *map(slot, names), table=table).take([1]).values()):
        assert (rows == i).all()


# What it costs.

_COST = """
import resource, sys
from pathlib import Path
import numpy as np
from airprune.components.component import Owner, Slot
from airprune.runs.store import DeviceStore
num_devices = int(sys.argv[2])
slot = Slot(name="top-k.error", owner=Owner.DEVICE, shape=lambda _: (44_000,))
memory = DeviceStore(Path(sys.argv[1]), [slot], None, num_devices)
for start in range(0, num_devices, 8):
    devices = range(start, min(start + 8, num_devices))
    memory.put(devices, {slot.name: memory.take(devices)[slot.name] + 1})
memory.commit(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_fleet(tmp_path):
    """44,000 entries are the paper's CNN; 1,000 devices are 176 MB, 300 are 53 MB."""

    def peak_kb(num_devices: int) -> int:
        command = [sys.executable, "-c", _COST, str(tmp_path / str(num_devices)), str(num_devices)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak_kb(1000) - peak_kb(300) < 8_000

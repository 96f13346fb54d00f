"""A device's ledger: what it trains from, what it sends again, and being killed anywhere."""

import io
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from airprune import files
from airprune.deployment.ledger import DeviceLedger, Result
from airprune.deployment.round_machine import RoundKey
from airprune.errors import WorkFailed

SLOT = "top-k.error"


def key(round_index):
    return RoundKey("run", round_index // 3, round_index % 3)


def train(memory, round_index, last_counted, asked="model"):
    """A toy whose upload and memory tell all that they were made from."""
    before = memory.get(SLOT, np.zeros(3))
    return Result(
        key=key(round_index),
        round_index=round_index,
        last_counted=last_counted,
        asked=asked,
        upload=f"{asked}, {round_index}, {before.tolist()}".encode(),
        compute_s=0.5,
        memory={SLOT: before * 2 + round_index + 1},
    )


def answer(ledger, path, round_index, last_counted, asked="model", **options):
    """A device's round up to its upload."""
    result = ledger.answer_to(key(round_index), last_counted=last_counted, asked=asked)
    if result is None:
        result = train(ledger.memory_after(last_counted), round_index, last_counted, asked)
        ledger = ledger.with_result(result, **options)
        ledger.save(path)
    return ledger, result


def test_memory_moves_on_if_the_upload_counted_and_goes_back_if_not(tmp_path):
    path = tmp_path / "ledger.safetensors"
    ledger, first = answer(DeviceLedger(run="run"), path, 0, -1)
    counted, _ = answer(ledger, path, 1, 0)
    assert counted.results[-1].upload == train(first.memory, 1, 0).upload
    lost, _ = answer(ledger, path, 1, -1)
    assert lost.results[-1].upload == train({}, 1, -1).upload
    assert [result.round_index for result in counted.results] == [0, 1]
    assert [result.round_index for result in lost.results] == [1], "what did not count is forgotten"


def test_the_same_orders_again_get_the_same_bytes_without_training():
    first = train({}, 0, -1)
    ledger = DeviceLedger(run="run").with_result(first)
    assert ledger.answer_to(key(0), last_counted=-1, asked="model") is first
    assert ledger.answer_to(key(0), last_counted=-1, asked="another model") is None
    assert ledger.answer_to(key(1), last_counted=-1, asked="model") is None
    assert ledger.answer_to(replace(key(0), run="other"), last_counted=-1, asked="model") is None


def test_orders_that_changed_are_answered_from_the_memory_before(tmp_path):
    ledger, first = answer(DeviceLedger(run="run"), tmp_path / "ledger", 0, -1)
    ledger, _ = answer(ledger, tmp_path / "ledger", 1, 0)
    ledger, again = answer(ledger, tmp_path / "ledger", 1, 0, "another model")
    assert again.upload == train(first.memory, 1, 0, "another model").upload
    assert [result.asked for result in ledger.results] == ["model", "another model"]


def test_a_global_round_that_is_asked_again_from_its_start_is_answered_with_the_same_bytes(tmp_path):
    ledger, sent = DeviceLedger(run="run"), []
    for index in range(6):  # two global rounds of three
        ledger, result = answer(ledger, tmp_path / "ledger", index, index - 1, max_results=4)
        sent.append(result.upload)
    again = [answer(ledger, tmp_path / "ledger", index, index - 1, max_results=4)[1].upload for index in (3, 4, 5)]
    assert again == sent[3:]


def test_a_memory_that_is_lost_is_told():
    assert DeviceLedger(run="run").memory_after(4) is None
    assert DeviceLedger(run="run").memory_after(-1) == {}


def test_a_ledger_comes_back_from_its_file_as_it_was(tmp_path):
    path = tmp_path / "ledger.safetensors"
    memory = {"a": np.float32([1, np.nan]), "b/c": np.zeros((0, 2), np.int8), "d": np.array(3.5)}
    saved = DeviceLedger(run="run").with_result(replace(train({}, 0, -1), memory=memory, upload=b""))
    saved = saved.with_result(train({}, 1, 0))
    saved.save(path)
    loaded = DeviceLedger.load(path, run="run")
    for mine, other in zip(loaded.results, saved.results, strict=True):
        names = ("key", "round_index", "last_counted", "asked", "upload", "compute_s")
        assert [getattr(mine, name) for name in names] == [getattr(other, name) for name in names]
        assert mine.memory.keys() == other.memory.keys()
        assert all(mine.memory[name].tobytes() == array.tobytes() for name, array in other.memory.items())
        assert all(mine.memory[name].dtype == array.dtype for name, array in other.memory.items())
    assert not DeviceLedger.load(tmp_path / "none", run="run").results


def test_a_ledger_of_another_run_or_with_a_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "ledger.safetensors"
    DeviceLedger(run="run").with_result(train({}, 0, -1)).save(path)
    with pytest.raises(WorkFailed, match="of run 'run', not of 'next'"):
        DeviceLedger.load(path, run="next")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(WorkFailed, match="cannot be read"):
        DeviceLedger.load(path, run="run")


class Killed(BaseException):
    pass


class DyingSystem:
    """`os` for `files`, of a process that dies at its n-th call that changes the disk; nothing works after that."""

    def __init__(self, calls_left):
        self.calls_left = calls_left

    def __getattr__(self, name):
        real = getattr(os, name)
        return self.dying(real) if name in ("open", "unlink", "fsync", "replace") else real

    def dying(self, real):
        def call(*args, **kwargs):
            self.live()
            return real(*args, **kwargs)

        return call

    def live(self):
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Killed

    def fdopen(self, descriptor, mode):
        if "r" in mode:
            return os.fdopen(descriptor, mode)
        system = self

        class Torn(io.BufferedWriter):
            def write(self, data):
                half = len(data) // 2
                super().write(data[:half])
                self.flush()
                system.live()
                return half + super().write(data[half:])

        return Torn(io.FileIO(descriptor, mode))


def points_of_one_save(path, monkeypatch):
    system = DyingSystem(1000)
    monkeypatch.setattr(files, "os", system)
    DeviceLedger(run="run").with_result(train({}, 0, -1)).save(path)
    return 1000 - system.calls_left


def test_a_save_that_is_killed_anywhere_leaves_the_old_ledger_or_the_new_one(tmp_path, monkeypatch, tally):
    path = tmp_path / "ledger.safetensors"
    num_points = points_of_one_save(path, monkeypatch)
    assert num_points >= 5  # folder, left-over, file, half of its contents, fsync, rename
    old = DeviceLedger(run="run").with_result(train({}, 0, -1))
    new = old.with_result(train(old.results[0].memory, 1, 0))
    for point in range(num_points):
        monkeypatch.setattr(files, "os", os)
        old.save(path)
        monkeypatch.setattr(files, "os", DyingSystem(point))
        with pytest.raises(Killed):
            new.save(path)
        monkeypatch.setattr(files, "os", os)
        assert len(DeviceLedger.load(path, run="run").results) == 1
    tally("kills", num_points)
    new.save(path)  # over what the killed ones left
    assert len(DeviceLedger.load(path, run="run").results) == 2
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_a_device_that_is_killed_anywhere_sends_what_one_that_is_not_sends(tmp_path, monkeypatch):
    num_points = points_of_one_save(tmp_path / "probe", monkeypatch)
    num_kills = 0
    for seed in range(12):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.safetensors"
        memory, last_counted = {}, -1  # of a device that is never killed
        ledger = DeviceLedger(run="run")
        for index in range(12):
            want = train(memory, index, last_counted)
            for _ in range(rng.choice([0, 0, 1, 3])):  # killed within the round, then asked again
                monkeypatch.setattr(files, "os", DyingSystem(rng.randrange(num_points + 3)))
                try:
                    _, result = answer(ledger, path, index, last_counted)
                    assert result.upload == want.upload  # sent, and the edge may have died with it
                except Killed:
                    num_kills += 1
                monkeypatch.setattr(files, "os", os)
                ledger = DeviceLedger.load(path, run="run")
            ledger, result = answer(ledger, path, index, last_counted)
            assert result.upload == want.upload
            if rng.random() < 0.6:
                memory, last_counted = want.memory, index
    assert num_kills > 40


WRITER = """
import sys
from pathlib import Path
import numpy as np
from airprune.deployment.ledger import DeviceLedger, Result
from airprune.deployment.round_machine import RoundKey
ledger = DeviceLedger(run="run")
for index in range(100_000):
    memory = {"slot": np.full(100_000, index)}
    ledger = ledger.with_result(Result(
        key=RoundKey("run", index, 0), round_index=index, last_counted=index - 1, asked="", upload=b"%d" % index,
        compute_s=0.0, memory=memory))
    ledger.save(Path(sys.argv[1]))
    print(index, flush=True)
"""


def test_a_real_kill_loses_nothing_that_was_saved(tmp_path):
    path = tmp_path / "ledger.safetensors"
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as process:
        last = [int(process.stdout.readline()) for _ in range(20)][-1]
        process.send_signal(signal.SIGKILL)
        told = [int(line) for line in process.stdout.read().split()]
    ledger = DeviceLedger.load(path, run="run")
    newest = ledger.results[-1]
    assert newest.round_index >= max([last, *told])
    assert newest.upload == b"%d" % newest.round_index
    assert (newest.memory["slot"] == newest.round_index).all()

"""Edges write their state: every one that only they have, of others the last of a moment."""

import asyncio

import numpy as np
import pytest

from airprune.deployment import edge_state
from airprune.deployment.edge_state import EdgeDisk, EdgeState
from airprune.deployment.kept_rounds import KeptRound, kept_place
from airprune.deployment.packing import RoundArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey

RUN = "r"


def after(number: int) -> tuple[EdgeState, RoundKey, KeptRound]:
    """The state after a round, whose model says which."""
    station = Station(model=np.full(3, float(number), dtype=np.float32))
    state = EdgeState(station=station, report=(pb.EdgeReport(run=RUN, round_index=number), b"sums"))
    kept = KeptRound(orders=pb.EdgeRound(run=RUN), arrays=RoundArrays(station=station, mask=None), uploads={0: b"u"})
    return state, RoundKey(RUN, number, 0), kept


@pytest.fixture
def written(monkeypatch) -> list[int]:
    """The rounds whose state was written, in order."""
    numbers: list[int] = []
    save = EdgeState.save

    def noted(state, path):
        numbers.append(state.report[0].round_index)
        save(state, path)

    monkeypatch.setattr(EdgeState, "save", noted)
    return numbers


def on_disk(disk: EdgeDisk) -> int:
    state = EdgeState.load(disk.file(RUN), run=RUN, slots=())
    assert state.report is not None
    return state.report[0].round_index


def test_of_states_that_the_cloud_has_the_first_is_written_at_once_and_the_last_soon(tmp_path, written, monkeypatch):
    monkeypatch.setattr(edge_state, "_SAVE_EVERY_S", 0.3)

    async def work():
        disk = EdgeDisk(folder=tmp_path, keeps_uploads=False)
        await disk.save_soon(*after(1))
        assert on_disk(disk) == 1
        await asyncio.gather(*(disk.save_soon(*after(number)) for number in (2, 3, 4)))
        assert written == [1, 4] and on_disk(disk) == 4

    asyncio.run(work())


def test_a_state_that_only_the_edge_has_is_written_at_once_and_stays(tmp_path, written, monkeypatch):
    monkeypatch.setattr(edge_state, "_SAVE_EVERY_S", 0.3)

    async def work():
        disk = EdgeDisk(folder=tmp_path, keeps_uploads=False)
        await disk.save(*after(1))
        waiting = asyncio.create_task(disk.save_soon(*after(2)))
        await asyncio.sleep(0.01)
        await disk.save(*after(3))
        assert on_disk(disk) == 3
        await waiting
        assert written == [1, 3] and on_disk(disk) == 3

    asyncio.run(work())


def test_rounds_that_are_to_be_kept_are_all_kept(tmp_path, written):
    async def work():
        disk = EdgeDisk(folder=tmp_path, keeps_uploads=True)
        for number in range(3):
            await disk.save_soon(*after(number))
        assert written == [0, 1, 2]
        assert all(KeptRound.load(kept_place(tmp_path, RoundKey(RUN, n, 0))).uploads == {0: b"u"} for n in range(3))

    asyncio.run(work())

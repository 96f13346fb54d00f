"""What an edge tells its devices, as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from airprune.errors import WorkFailed
from airprune.rounds.messages import Broadcast
from airprune.rounds.wire import broadcast_from_bytes, broadcast_to_bytes


def test_broadcasts_arrive_as_they_were_sent():
    model = np.random.default_rng(0).normal(size=20).astype(np.float32)
    values = {"a.b": np.arange(3, dtype=np.float32)}
    for mask in (None, np.arange(11) % 3 == 0, np.arange(11)):
        there = broadcast_from_bytes(broadcast_to_bytes(Broadcast(model=model, mask=mask, values=values)))
        assert there.model.tobytes() == model.tobytes()
        assert there.mask is None if mask is None else np.array_equal(there.mask, mask)
        assert there.values.keys() == values.keys()
        assert np.array_equal(there.values["a.b"], values["a.b"])


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"], ids=range(4))
def test_bytes_that_are_no_message_are_refused_in_one_sentence(data):
    with pytest.raises(WorkFailed, match="cannot be read"):
        broadcast_from_bytes(data)

"""What travels between an edge and a device, as bytes: the same state at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from airprune.errors import WorkFailed
from airprune.federation.messages import Broadcast, Orders
from airprune.federation.method import Method
from airprune.federation.wire import (
    Codec,
    broadcast_from_bytes,
    broadcast_to_bytes,
    orders_from_bytes,
    orders_to_bytes,
    upload_from_bytes,
    upload_to_bytes,
)
from support.tiny import tiny_scenario
from test_device import device, train

CODES = {
    "cast": {},
    "bfloat16": {"compression__name": "cast", "compression__cast__format": "bfloat16"},
    "quantised": {"compression__name": "quantised"},
    "top-k": {"compression__name": "top-k"},
    "sign": {"compression__name": "sign"},
}


@pytest.mark.parametrize("masking", ["probe", "frozen"])
@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("keep", [300, 1024])
def test_an_edge_decodes_the_very_state_that_the_device_has_counted_on(code, masking, keep):
    choices = {**CODES[code], "masking__name": masking}
    one = device(choices=choices)
    slots = one.method.compression("slots", one.shape)
    memory = {slot.name: slot.row(one.shape) for slot in slots}
    received, upload = train(one, keep=keep, memory=memory)
    codec = Codec(compression=Method.of(tiny_scenario(**choices)).compression, wire=one.wire, shape=one.shape)
    again = upload_from_bytes(upload_to_bytes(upload, codec), received, codec)
    assert np.array_equal(again.state, upload.state)  # where nothing is sent, a zero of either sign
    assert (again.mask is None) == (upload.mask is None)
    if upload.mask is not None:
        assert np.array_equal(again.mask, upload.mask)
    assert (again.loss, again.num_samples, again.sent_bits) == (upload.loss, upload.num_samples, upload.sent_bits)
    assert again.memory == {}  # what a device remembers stays with it


def test_a_compressed_upload_is_as_small_as_it_is_charged():
    one = device(choices=CODES["quantised"])
    codec = Codec(compression=one.method.compression, wire=one.wire, shape=one.shape)
    memory = {"quantised.error": np.zeros(1024, dtype=np.float32)}
    _, upload = train(one, keep=1024, memory=memory)
    about_and_biases = 4 * (64 + 4) + 1_000  # float32 biases, and what describes the message
    assert len(upload_to_bytes(upload, codec)) <= upload.sent_bits / 8 + about_and_biases


def test_orders_and_broadcasts_arrive_as_they_were_sent():
    orders = Orders(device=7, keep=12, learning_rate=0.1, round_index=3, memory={"a.b": np.arange(3, dtype=np.float32)})
    again = orders_from_bytes(orders_to_bytes(orders))
    assert (again.device, again.keep, again.learning_rate, again.round_index) == (7, 12, 0.1, 3)
    assert np.array_equal(again.memory["a.b"], orders.memory["a.b"])
    model = np.random.default_rng(0).normal(size=20).astype(np.float32)
    for mask in (None, np.arange(11) % 3 == 0):
        there = broadcast_from_bytes(broadcast_to_bytes(Broadcast(model=model, mask=mask)))
        assert there.model.tobytes() == model.tobytes()
        assert there.mask is None if mask is None else np.array_equal(there.mask, mask)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}"], ids=range(4))
def test_bytes_that_are_no_message_are_refused_in_one_sentence(data):
    for read in (broadcast_from_bytes, orders_from_bytes):
        with pytest.raises(WorkFailed, match="cannot be read"):
            read(data)

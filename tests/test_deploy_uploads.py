"""A device's update as bytes: the same state at both ends, as many bytes as were charged, and nothing else gets in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from airprune.conformance import Subject, _watched, points
from airprune.deployment.uploads import (
    Expected,
    digest_of,
    told_mask,
    upload_from_bytes,
    upload_to_bytes,
)
from airprune.federation.device import device_round
from airprune.federation.wire import Codec
from airprune.learning import worker
from airprune.methods import METHODS
from airprune.simulation.experiment import Experiment

NUMBERS = ("sent_bits", "code_error", "loss", "num_samples", "pruning_error_sq")
NUMBERS += ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def codec_of(device) -> Codec:
    float64 = device.model.state_array.dtype == np.float64
    return Codec(compression=device.method.compression, wire=device.wire, shape=device.shape, float64=float64)


def same_upload(here, there, codec) -> None:
    """Bit for bit in all that was sent; elsewhere a zero, whatever its sign."""
    assert np.array_equal(here.state, there.state)
    sent = codec.sent_index(here.mask)
    assert here.state[sent].tobytes() == there.state[sent].tobytes()
    assert here.state[codec.rest_index].tobytes() == there.state[codec.rest_index].tobytes()
    assert (here.mask is None) == (there.mask is None)
    assert here.mask is None or (there.mask.dtype == bool and np.array_equal(here.mask, there.mask))
    assert [getattr(here, name) for name in NUMBERS] == pytest.approx(
        [getattr(there, name) for name in NUMBERS], rel=0, abs=0, nan_ok=True
    )
    assert here.report.keys() == there.report.keys()
    for name, array in here.report.items():
        assert (array.dtype, array.shape) == (there.report[name].dtype, there.report[name].shape)
        assert array.tobytes() == there.report[name].tobytes()


@pytest.fixture
def bytes_between(monkeypatch):
    """Lets every upload of a run travel as bytes; (round, device) → its bytes without reports."""
    sizes = {}

    def over_the_wire(device, received, orders, **rest):
        upload = device_round(device, received, orders, **rest)
        codec, digest = codec_of(device), digest_of(received.model)
        told = told_mask(device.method.masking, received.mask, orders.round_index, codec)
        data = upload_to_bytes(upload, codec, model_digest=digest, told=told, code=orders.code)
        sent = codec.sent_index(upload.mask).size
        expected = Expected(
            keep=sent - codec.shape.fixed_weights, code=orders.code, model_digest=digest, max_bytes=len(data)
        )
        there = upload_from_bytes(data, received.model, codec, expected=expected, told=told)
        same_upload(upload, there, codec)
        plain = upload_to_bytes(replace(upload, report={}), codec, model_digest=digest, told=told, code=orders.code)
        sizes[orders.round_index, orders.device] = len(plain)
        return replace(there, memory=upload.memory)

    monkeypatch.setattr(worker, "device_round", over_the_wire)
    return sizes


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_sends_the_bytes_it_is_charged_and_arrives_bit_for_bit(method, bytes_between):
    scenario = Subject.named(method, "methods").scenario({"plan.framing": True})
    frame_bits = 8 * Experiment.of(scenario, dataset=points()).terms.codec.frame_bytes
    rounds = _watched(scenario).rounds
    charged = {
        (number, device): bits - timed.opened.charges.beside_bits + frame_bits
        for number, (timed, _) in enumerate(rounds)
        for device, bits in zip(timed.opened.device.tolist(), timed.opened.bits.tolist(), strict=True)
    }
    assert bytes_between
    assert {place: 8 * size for place, size in bytes_between.items()} == {
        place: charged[place] for place in bytes_between
    }


@pytest.mark.parametrize("method", ["adaptive-pruning", "adaptive", "sign-sgd", "scaffold", "feddst"])
def test_a_run_over_bytes_ends_in_the_very_model_of_a_run_without(method, request):
    scenario = Subject.named(method, "methods").scenario()
    plain = _watched(scenario).final
    assert request.getfixturevalue("bytes_between") == {}
    assert _watched(scenario).final == plain

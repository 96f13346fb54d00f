"""A device's update as bytes: the same state at both ends, as many bytes as were charged, and nothing else gets in."""

from __future__ import annotations

import math
import re
import struct
import tracemalloc
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from airprune.components.component import paper_shape
from airprune.deployment.digests import digest_of
from airprune.deployment.run_definition import reports_of
from airprune.deployment.uploads import BadUpload, Expected, upload_from_bytes, upload_to_bytes
from airprune.methods import METHODS
from airprune.methods.compression.base import Wire
from airprune.methods.compression.packing import num_bytes
from airprune.rounds.device import device_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.training import worker
from airprune.rounds.wire import WHOLE_MODEL, Codec, shared_mask_of, upload_size
from airprune.scenario import Scenario
from airprune.studies.conformance import Subject, _watched, points
from support.each import each
from support.one_device import device
from support.tiny import tiny_scenario

NUMBERS = ("sent_bits", "code_error", "loss", "num_samples", "pruning_error_sq")
NUMBERS += ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def codec_of(device) -> Codec:
    float64 = device.model.state_array.dtype == np.float64
    return Codec(compression=device.method.compression, wire=device.wire, shape=device.shape, float64=float64)


def same_upload(here, there, codec) -> None:
    """Bit for bit in all that was sent; elsewhere a zero, whatever its sign."""
    assert np.array_equal(here.state, there.state)
    assert (here.first_trained, here.last_trained) == (there.first_trained, there.last_trained)
    sent = codec.sent_index(here.mask, (here.first_trained, here.last_trained))
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


def expected_of(codec, *, keep, code, model_digest, reports, part=WHOLE_MODEL) -> Expected:
    """Returns an upload's expectation with as many bytes as it can have: with a mask, and all of its reports."""
    num_sent = codec.shape.fixed_weights + keep
    most = upload_size(codec, num_sent, code=code, has_mask=True, part=part)
    for name, (dtype, shape) in reports.items():
        most += 3 + 4 * len(shape) + len(name.encode()) + np.dtype(dtype).itemsize * int(np.prod(shape))
    given = {"keep": keep, "code": code, "model_digest": model_digest, "part": part}
    return Expected(**given, max_bytes=most, reports=reports)


@pytest.fixture
def bytes_between(monkeypatch):
    """Lets every upload of a run travel as bytes; (round, device) → its bytes without reports."""
    sizes = {}

    def over_the_wire(device, received, orders, **rest):
        upload = device_round(device, received, orders, **rest)
        codec, digest = codec_of(device), digest_of(received.model)
        shared_mask = shared_mask_of(device.method.masking, received.mask, orders.round_index, codec)
        data = upload_to_bytes(upload, codec, model_digest=digest, shared_mask=shared_mask, code=orders.code)
        keep = codec.sent_index(upload.mask).size - codec.shape.fixed_weights
        expected = expected_of(
            codec,
            keep=keep,
            part=(orders.first_trained, orders.last_trained),
            code=orders.code,
            model_digest=digest,
            reports=reports_of(device.method, device.shape),
        )
        assert expected.reports is not None
        there = upload_from_bytes(data, received.model, codec, expected=expected, shared_mask=shared_mask)
        same_upload(upload, there, codec)
        plain = upload_to_bytes(
            upload._replace(report={}), codec, model_digest=digest, shared_mask=shared_mask, code=orders.code
        )
        sizes[orders.round_index, orders.device] = len(plain)
        return there._replace(memory=upload.memory)

    monkeypatch.setattr(worker, "device_round", over_the_wire)
    monkeypatch.setattr(worker, "together", lambda device, num_devices: None)  # one after the other
    monkeypatch.setattr(worker, "train_at_once", lambda *arguments, **options: None)
    return sizes


# Secure sums hide them: test_deploy_secure.py; deployments refuse over-the-air.
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"secure-sums", "over-the-air"}))
def test_every_method_sends_the_bytes_it_is_charged_and_arrives_bit_for_bit(method, bytes_between):
    scenario = Subject.named(method, "methods").scenario({"plan.framing": True})
    frame_bits = 8 * Experiment.of(scenario, dataset=points()).context.codec.frame_bytes
    rounds = _watched(scenario).rounds
    charged = {
        (number, device): bits - timed.planned.charges.beside_bits + frame_bits
        for number, (timed, _) in enumerate(rounds)
        for device, bits in zip(timed.planned.device.tolist(), timed.planned.bits.tolist(), strict=True)
    }
    assert bytes_between
    assert {place: 8 * size for place, size in bytes_between.items()} == {
        place: charged[place] for place in bytes_between
    }


UNEQUAL = {
    "network.cpu_hz": 2e8,
    "network.cpu_hz_max": 3e9,
    "clock.compute": "flops",
    "clock.flops_per_cycle": 1e-2,
    "plan.deadline_s": "auto",
}


@pytest.mark.parametrize("compression", ["ladder", "cast"])
def test_a_device_that_trains_upper_layers_sends_those_and_is_charged_for_them_alone(compression, bytes_between):
    changes = {**UNEQUAL, "plan.framing": True, "compression.name": compression}
    scenario = Subject.named("adaptive-work", "methods").scenario(changes)
    found = [
        (number, device, first, bits)
        for number, (timed, _) in enumerate(_watched(scenario).rounds)
        for device, first, bits in zip(
            timed.planned.device.tolist(),
            timed.planned.first_trained.tolist(),
            timed.planned.bits.tolist(),
            strict=True,
        )
    ]
    assert {first for _, _, first, _ in found} == {0, 1}
    assert {(number, device): bits for number, device, _, bits in found} == {
        place: 8 * size for place, size in bytes_between.items()
    }
    if compression == "cast":  # of 12-64-4: 48 bytes of header, 56 of statistics, biases in float32, weights in float64
        whole, upper = 104 + 4 * (64 + 4) + 8 * (12 * 64 + 64 * 4), 104 + 4 * 4 + 8 * 64 * 4
        assert {(first, bits) for _, _, first, bits in found} == {(0, 8.0 * whole), (1, 8.0 * upper)}


@pytest.mark.parametrize("method", ["adaptive-pruning", "adaptive-bits", "sign-sgd", "scaffold", "feddst"])
def test_a_run_over_bytes_ends_in_the_very_model_of_a_run_without(method, request):
    scenario = Subject.named(method, "methods").scenario()
    plain = _watched(scenario).final
    assert request.getfixturevalue("bytes_between") == {}
    assert _watched(scenario).final == plain


@dataclass(frozen=True, kw_only=True)
class Case:
    """An upload of a tiny MLP, and what its edge knows."""

    data: bytes
    received: np.ndarray
    codec: Codec
    expected: Expected
    shared_mask: np.ndarray | None

    def read(self, data: bytes):
        return upload_from_bytes(data, self.received, self.codec, expected=self.expected, shared_mask=self.shared_mask)


CASES = {
    "cast": {},
    "cast-32": {"value_bits": 32.0},
    "bfloat16": {"compression__name": "cast", "compression__cast__format": "bfloat16"},
    "quantised": {"compression__name": "quantised"},
    "quantised-3": {"compression__name": "quantised", "compression__quantised__bits": 8, "code": 3},
    "top-k": {"compression__name": "top-k"},
    "random-k": {"compression__name": "random-k"},
    "sign": {"compression__name": "sign"},
    "rounded": {"compression__name": "rounded"},
    "ladder-2": {"compression__name": "ladder", "code": 2},
    "told": {"tells": True},
    "reports": {"reports": True},
    "whole": {"keep": 1024},
    "upper layer": {"keep": 1024, "part": (1, None)},
    "masked upper layer": {"part": (1, 1)},
    "lower layer": {"keep": 1024, "part": (0, 0)},
}


@cache
def case(name: str) -> Case:
    choices = dict(CASES[name])
    code, value_bits, keep = choices.pop("code", None), choices.pop("value_bits", 64.0), choices.pop("keep", 300)
    tells, reports, part = choices.pop("tells", False), choices.pop("reports", False), choices.pop("part", WHOLE_MODEL)
    one = device(choices=choices)
    one.wire = replace(one.wire, value_bits=value_bits)
    received = one.model.state_array.copy()
    memory = {slot.name: slot.row(one.shape) for slot in one.method.compression.slots(one.shape)}
    orders = Orders(device=3, keep=keep, learning_rate=0.05, round_index=0, code=code, memory=memory)
    orders = orders._replace(first_trained=part[0], last_trained=part[1])
    upload = device_round(one, Broadcast(model=received), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    kinds = {"own.scores": ("<f8", (1024,)), "own.union": ("<i8", (8, 128))} if reports else {}
    rng = np.random.default_rng(0)
    report = {name: rng.integers(0, 2, shape).astype(dtype) for name, (dtype, shape) in kinds.items()}
    codec, digest = codec_of(one), digest_of(received)
    shared_mask = upload.mask if tells else None
    data = upload_to_bytes(
        upload._replace(report=report), codec, model_digest=digest, shared_mask=shared_mask, code=code
    )
    expected = expected_of(codec, keep=keep, code=code, model_digest=digest, reports=kinds, part=part)
    return Case(data=data, received=received, codec=codec, expected=expected, shared_mask=shared_mask)


def signed(data: bytes | bytearray) -> bytes:
    """With the digest that its bytes should have."""
    return bytes(data[:32]) + digest_of(bytes(data[:32]), bytes(data[48:])) + bytes(data[48:])


def put(data: bytes, place: int, layout: str, *values) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, place, *values)
    return signed(changed)


REST = 48 + 56
MASK = REST + 4 * 68
UPDATE = MASK + 128
REPORTS = UPDATE + 300 * 8
LIES = {
    "magic must be APUP": ("cast", lambda data: put(data, 0, "4s", b"PK\3\4")),
    "version must be 1": ("cast", lambda data: put(data, 4, "B", 2)),
    "digest must be that of its bytes": ("cast", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "model must be the one that was sent": ("cast", lambda data: put(data, 16, "16s", b"another model")),
    "code must be 3, as ordered": ("quantised-3", lambda data: put(data, 12, "<i", 8)),
    "bits of a value must be 64": ("cast", lambda data: put(data, 5, "B", 32)),
    "flags must be at most 3": ("cast", lambda data: put(data, 6, "B", 4)),
    "weights must be between 0 and 256": ("upper layer", lambda data: put(data, 8, "<I", 1024)),
    "length must be 2,168 bytes for 256 weights": ("upper layer", lambda data: signed(data[:-8])),
    "weights must be between 0 and 768": ("lower layer", lambda data: put(data, 8, "<I", 1024)),
    "mask must hold at most 300": ("masked upper layer", lambda data: put(data, 104 + 4 * 4, "80s", b"\xff" * 80)),
    "weights must be between 0 and 300": ("cast", lambda data: put(data, 8, "<I", 1024)),
    "length must be between 48 and": ("cast", lambda data: signed(data + b"\0" * 129)),
    "length must be 2,776 bytes for 300 weights, got 2,777": ("told", lambda data: signed(data + b"\0")),
    "mask must be sent along": ("cast", lambda data: signed(put(data, 6, "B", 2)[:MASK] + data[UPDATE:])),
    "mask must hold the 300 prunable weights": ("cast", lambda data: put(data, MASK, "8s", b"\xff" * 8)),
    "num_samples must be at least 1": ("cast", lambda data: put(data, 48, "<Q", 0)),
    "loss must be finite": ("cast", lambda data: put(data, 64, "<d", math.inf)),
    "code_error must be finite and not negative": ("sign", lambda data: put(data, 56, "<d", -1.0)),
    "values must be finite, got 1 that are not": ("cast", lambda data: put(data, UPDATE, "<d", math.nan)),
    "values must be finite, got 2 ": ("cast", lambda data: put(data, REST, "<2f", math.nan, math.inf)),
    "update must be one by ladder": ("ladder-2", lambda data: put(data, UPDATE + 16 + 9, "2s", b"\xff" * 2)),
    "update must be one by top-k": ("top-k", lambda data: put(data, len(data) - 8, "8s", b"\xff" * 8)),
    "report must be one that the method declares": (
        "reports",
        lambda data: put(data, REPORTS + 7, "10s", b"other.name"),
    ),
    "report must be of a known kind": ("reports", lambda data: put(data, REPORTS + 1, "B", 77)),
    "report must be finite": ("reports", lambda data: put(data, REPORTS + 17, "<d", math.nan)),
    "length must end with its 1 reports": ("reports", lambda data: put(data, 7, "B", 1)),
    "length must leave 3 bytes": ("reports", lambda data: put(data, 7, "B", 3)),
}


@each("sentence", LIES)
def test_a_lie_is_refused_with_its_own_sentence_although_its_digest_is_right(sentence):
    name, lie = LIES[sentence]
    one = case(name)
    one.read(one.data)
    with pytest.raises(BadUpload, match=f"^Upload.{re.escape(sentence)}[^\n]*$"):
        one.read(lie(one.data))


def test_reports_that_nobody_declared_are_bounded_in_size():
    one = case("reports")
    anything = replace(one, expected=replace(one.expected, reports=None, max_bytes=2**20))
    assert anything.read(one.data).report.keys() == {"own.scores", "own.union"}
    bomb = one.data[:7] + b"\1" + one.data[8:REPORTS] + struct.pack("<BBBI", 1, 5, 1, 2**30) + b"a"
    with pytest.raises(BadUpload, match="with at most 8,736 entries"):
        anything.read(signed(bomb))


def mutated(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    """Changed at random; mostly with the digest that makes it look honest. Half of them keep header and length."""
    changed = bytearray(data)
    inner = rng.random() < 0.5
    for _ in range(rng.integers(1, 4)):
        kind, place = rng.integers(4 if inner else 8), int(rng.integers(48 if inner else 0, len(changed)))
        if kind == 0:
            changed[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:  # leaves the number of ones in a mask as it is
            away = int(rng.integers(min(48, len(changed) - 1), len(changed)))
            changed[place], changed[away] = changed[away], changed[place]
        elif kind == 2 and place + 8 <= len(changed):
            struct.pack_into("<d", changed, place, rng.choice([math.nan, math.inf, -1.0, 1e308, 0.0]))
        elif kind == 3:
            changed[place : place + 64] = rng.bytes(len(changed[place : place + 64]))
        elif kind == 4:
            del changed[max(place, 1) :]
        elif kind == 5:
            changed += rng.bytes(int(rng.integers(1, 65)))
        elif kind == 6:
            changed[place:] = other[place:] or b"\0"
        else:
            weights = rng.choice([0, 1, 299, 300, 301, 1024, 2**31, 2**32 - 1])
            changed[5:12] = struct.pack("<BBBI", rng.choice([0, 32, 64]), *rng.integers(5, size=2).tolist(), weights)
    return bytes(changed) if rng.random() < 0.1 or len(changed) < 48 else signed(changed)


def try_mutated(count: int, seed: int) -> int:
    """Returns how many of so many mutated uploads were refused; the others must be as sound as any."""
    rng, cases = np.random.default_rng(seed), [case(name) for name in CASES]
    refused = 0
    for number in range(count):
        one = cases[number % len(cases)]
        data = mutated(rng, one.data, cases[rng.integers(len(cases))].data)
        try:
            upload = one.read(data)
        except BadUpload as refusal:
            assert "\n" not in str(refusal)
            refused += 1
        else:
            assert np.isfinite(upload.state).all()
            assert one.codec.sent_index(upload.mask).size <= one.expected.keep
            assert upload.num_samples >= 1
    return refused


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_uploads_raise_nothing_but_the_refusal(count):
    assert try_mutated(count, seed=count) > 0.5 * count  # the rest are other numbers in the right places


def test_reading_mutated_uploads_takes_memory_for_a_few_states():
    try_mutated(len(CASES), seed=0)  # what is made once
    tracemalloc.start()
    try:
        try_mutated(500, seed=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    state = 8 * case("cast").codec.shape.num_state
    assert peak < 12 * state


FRAMED = {
    "ladder": {"compression__name": "ladder"},
    "quantised": {"compression__name": "quantised", "compression__quantised__bits": 16},
    "five levels": {"compression__name": "quantised", "compression__quantised__levels": 5},
    "top-k": {"compression__name": "top-k"},
    "top-all": {"compression__name": "top-k", "compression__top-k__share": 1.0},
    "random-k": {"compression__name": "random-k", "plan__bits_per_weight": 40.0},
    "sign": {"compression__name": "sign"},
    "exact": {},
    "16 bits charged": {"plan__bits_per_weight": 16.0},
    "float64": {"model__float64": True, "plan__bits_per_weight": 32.0},
}


@pytest.mark.parametrize("name", FRAMED)
def test_framing_charges_the_bytes_of_every_code_and_plans_with_no_fewer(name):
    context = Experiment.of(tiny_scenario(**FRAMED[name], plan__framing=True), dataset=points()).context
    charges, codec, size = context.charges(0), context.codec, context.shape.prunable_weights
    keep = np.array([0, 1, 2, 7, 300, 301, size - 1, size])
    codes = [None] if context.codes is None else [None, *context.codes.numbers]
    for code in codes:
        charged = context.upload_bits(keep, charges, None if code is None else np.full(len(keep), code))
        sent = [
            8 * upload_size(codec, context.shape.fixed_weights + n, code=code, has_mask=n < size) for n in keep.tolist()
        ]
        assert charged.tolist() == sent
    per_weight_bits, fixed_bits = context.line
    planned = per_weight_bits * (context.shape.fixed_weights + keep) + fixed_bits
    planned += charges.uplink_bits + charges.always_bits
    assert np.all(planned >= context.upload_bits(keep, charges))


def test_the_format_adds_less_than_a_percent_to_the_papers_upload():
    """Checks the CNN's 43,888 weights at 64 bits: header, statistics, 114 biases; with half of the weights a mask."""
    shape, compression = replace(paper_shape(), num_personal=0), Method.of(Scenario()).compression
    wire = Wire(value_bits=64.0, num_weights=shape.num_weights, num_tensors=4)
    codec = Codec(compression=compression, wire=wire, shape=shape)
    for keep, most in ((25_168, 0.002), (12_584, 0.003)):
        sent = shape.fixed_weights + keep
        has_mask = keep < shape.prunable_weights
        counted = 8 * sent + (num_bytes(shape.prunable_weights) if has_mask else 0)
        assert upload_size(codec, sent, code=None, has_mask=has_mask) - counted == 48 + 56 + 4 * 114
        assert (48 + 56 + 4 * 114) / counted < most


def test_framing_counts_in_the_hash_only_where_it_is_on():
    plain = tiny_scenario()
    assert plain.hash == tiny_scenario(plan__framing=False).hash
    assert plain.hash != tiny_scenario(plan__framing=True).hash

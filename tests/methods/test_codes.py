"""The codes that a planner chooses from: what they lose, what they cost, and that nothing is forgotten between them."""

import itertools
import math

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.methods.compression import COMPRESSIONS, Message, Wire, transmit
from airprune.methods.compression.ladder import RUNGS

PAPER = Wire(value_bits=64, num_weights=43_888, num_tensors=4)
STARTS = np.array([0, 800, 18_720, 40_000, 43_888])


def update(kind: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.laplace(size=43_888) if kind == "laplace" else rng.standard_t(3, size=43_888)
    return values * 10.0 ** rng.uniform(-6, 2)


def lost(name: str, values: np.ndarray, starts: np.ndarray = STARTS, **options) -> float:
    """‖x − sent‖² / ‖x‖²."""
    compression = COMPRESSIONS[name](**options)
    wire = Wire(value_bits=64, num_weights=values.size, num_tensors=starts.size - 1)
    message = compression.encode(wire, values, starts, np.random.default_rng(0))
    return float(np.sum((compression.decode(wire, message, starts) - values) ** 2) / np.sum(values**2))


@pytest.mark.parametrize("kind", ["laplace", "heavy"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_rounding_is_near_the_best_uniform_quantiser_found_by_brute_force(kind, bits):
    """One tensor, every cut on a fine grid, the least-squares scale of each."""
    values, one = update(kind), np.array([0, 43_888])
    top = 2 ** (bits - 1) - 0.5
    best = 1.0
    for cut in np.geomspace(np.abs(values).max() / 100, np.abs(values).max(), 150):
        step = cut / (top + 0.5)
        level = np.sign(values) * np.minimum(np.floor(np.abs(values) / step) + 0.5, top)
        best = min(best, 1 - np.sum(values * level) ** 2 / np.sum(level**2) / np.sum(values**2))
    assert lost("rounded", values, one, bits=bits) <= 1.35 * best


@pytest.mark.parametrize("one_in", [2, 8, 16, 64])
def test_ternary_sends_the_largest_entries_as_signs_times_their_mean(one_in):
    values = update("laplace")
    chosen = np.sort(np.argsort(-np.abs(values), kind="stable")[: values.size // one_in])
    expected = np.zeros(values.size)
    for first, last in itertools.pairwise(STARTS):
        here = chosen[(chosen >= first) & (chosen < last)]
        expected[here] = np.sign(values[here]) * np.abs(values[here]).mean() if here.size else 0.0
    ternary = COMPRESSIONS["ternary"](one_in=one_in)
    message = ternary.encode(PAPER, values, STARTS, None)
    np.testing.assert_allclose(ternary.decode(PAPER, message, STARTS), expected, rtol=1e-12)


@pytest.mark.parametrize("one_in", [8, 16, 64])
def test_positions_cost_at_most_a_sixth_more_than_their_entropy(one_in):
    p = 1 / one_in
    entropy = p - p * math.log2(p) - (1 - p) * math.log2(1 - p)
    per_weight, _ = COMPRESSIONS["ternary"](one_in=one_in).line(PAPER)
    assert entropy < per_weight < 7 / 6 * entropy


def test_a_ternary_list_by_hand():
    """m = 4: l = 2, k = 2 of 8 entries, at 1 and 6: low bits 01 10, high parts 0 1 as 1 0 1, signs + −."""
    values = np.array([0.1, 3.0, 0, 0, 0.2, 0, -5.0, 0])
    compression, wire = COMPRESSIONS["ternary"](one_in=4), Wire(value_bits=64, num_weights=8, num_tensors=1)
    message = compression.encode(wire, values, np.array([0, 8]), None)
    assert message.payload == np.array([4.0]).tobytes() + bytes([0b01_10_101_0, 0b1_0000000])
    assert message.bits == 64 + 4 + 3 + 2
    assert compression.decode(wire, message, np.array([0, 8])).tolist() == [0, 4, 0, 0, 0, 0, -4, 0]


@pytest.mark.parametrize("row", [0b01_10_111_0, 0b01_10_000_0, 0b11_01_110_0])
def test_a_list_that_no_encoder_makes_is_refused(row):
    compression, wire = COMPRESSIONS["ternary"](one_in=4), Wire(value_bits=64, num_weights=8, num_tensors=1)
    with pytest.raises(InvalidValue, match=r"Message\.payload must list"):
        compression.decode(wire, Message(bytes(8) + bytes([row, 0]), 73, 8), np.array([0, 8]))


def test_one_bit_is_the_sign_times_the_mean():
    values = update("laplace")
    assert lost("rounded", values, bits=1) == pytest.approx(lost("sign", values), rel=1e-12)


@pytest.mark.parametrize(
    "name,options", [("rounded", {"bits": 3}), ("ternary", {"one_in": 2}), ("ladder", {"bits": 2})]
)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_arrives_so(name, options, wrong):
    decoded, _, _ = ap.compress([1.0, wrong, -2.0, 0.5], name, rng=0, **options)
    assert not np.isfinite(decoded).all()


@pytest.mark.parametrize("size", [1e-300, 1e200])
def test_tiny_and_huge_updates_are_rounded_like_others(size):
    plain = np.array([3.0, -4.0, 0.5, 1.0])
    small, _, _ = ap.compress(plain, "rounded", bits=3)
    scaled, _, _ = ap.compress(plain * size, "rounded", bits=3)
    np.testing.assert_allclose(scaled, small * size, rtol=1e-12)


# The ladder


def test_rungs_ascend_in_bits_and_descend_in_error_and_their_errors_are_those_of_laplacian_updates():
    codes = COMPRESSIONS["ladder"]().ladder(PAPER)
    bits, errors = [code.bits_per_weight for code in codes], [code.error for code in codes]
    assert bits == sorted(bits) and errors == sorted(errors, reverse=True) and len(set(bits)) == len(bits)
    values = update("laplace")
    for rung, code in zip(RUNGS, codes, strict=True):
        message = rung.compression.encode(PAPER, values, STARTS, np.random.default_rng(0))
        measured = np.sum((rung.compression.decode(PAPER, message, STARTS) - values) ** 2)
        assert measured / np.sum(values**2) == pytest.approx(code.error, rel=0.25, abs=1e-6)


def test_fixed_bits_of_the_ladder_suffice_for_every_rung():
    ladder = COMPRESSIONS["ladder"]()
    codes, (_, fixed) = ladder.ladder(PAPER), ladder.line(PAPER)
    for place, code in enumerate(codes):
        wire = Wire(value_bits=64, num_weights=43_888, num_tensors=4, code=place)
        for n in (0, 1, 777, 43_888):
            assert ladder.message_bits(wire, n) <= code.bits_per_weight * n + fixed


def test_one_memory_serves_all_rungs_and_forgets_nothing():
    """Sent so far + memory = all that was wanted, to rounding, whatever code each round used."""
    ladder, rng = COMPRESSIONS["ladder"](), np.random.default_rng(5)
    memory, wanted, sent = np.zeros(43_888), np.zeros(43_888), np.zeros(43_888)
    for round_number in range(12):
        delta = rng.laplace(size=43_888)
        wire = Wire(value_bits=64, num_weights=43_888, num_tensors=4, code=int(rng.integers(len(RUNGS))))
        decoded, _, memory = transmit(ladder, wire, delta, STARTS, memory, rng)
        wanted, sent = wanted + delta, sent + decoded
        assert round_number or np.any(memory != 0)
    np.testing.assert_allclose(sent + memory, wanted, atol=1e-12)


def test_without_a_planner_everybody_has_the_best_code_of_so_many_bits():
    for bits, expected in ((0.01, 0.140625), (0.44, 0.4375), (4.0, 4.0), (7.9, 6.0), (32, 32.0)):
        assert COMPRESSIONS["ladder"](bits=bits).line(PAPER)[0] == expected

"""What travels instead of an update: bits, bytes, rounding, and error feedback."""

import itertools
import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airprune as ap
from airprune.components.component import ModelShape, Owner, Tensor, paper_shape
from airprune.components.layers import PrunableLayers
from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.methods.compression import COMPRESSIONS, Compression, Message, Wire, transmit
from airprune.methods.compression.cast import bfloat16_bits
from airprune.methods.compression.packing import pack, unpack
from airprune.methods.compression.top_k import largest
from support.each import each

PAPER = Wire(value_bits=64, num_weights=43_888, num_tensors=4)

MEMBERS = [
    ("cast", {"format": "exact"}),
    ("cast", {"format": "float32"}),
    ("cast", {"format": "bfloat16"}),
    ("cast", {"format": "float16"}),
    ("quantised", {"bits": 2}),
    ("quantised", {"bits": 4}),
    ("quantised", {"bits": 16, "norm": "l2"}),
    ("quantised", {"levels": 4, "stochastic": False}),
    ("quantised", {"levels": 2**40}),
    ("top-k", {"share": 0.1}),
    ("top-k", {"share": 1.0}),
    ("top-k", {"count": 7}),
    ("random-k", {"share": 0.1}),
    ("random-k", {"share": 1.0}),
    ("random-k", {"count": 7}),
    ("sign", {"scale": "mean"}),
    ("sign", {"scale": 0.01}),
    ("rounded", {"bits": 1}),
    ("rounded", {"bits": 4}),
    ("rounded", {"bits": 16}),
    ("ternary", {"one_in": 2}),
    ("ternary", {"one_in": 11}),
    ("ternary", {"one_in": 64}),
    ("ladder", {"bits": 0.5}),
    ("ladder", {"bits": 3}),
]
every_member = pytest.mark.parametrize("name,options", MEMBERS, ids=lambda value: str(value))
each_member = each("name,options", MEMBERS)


class Uniforms:
    """Random numbers that a test chooses."""

    def __init__(self, *values):
        self.values = np.array(values)

    def random(self, size):
        return np.resize(self.values, size)


def of(name, **options):
    return COMPRESSIONS[name](**options)


def case(seed):
    """A wire, an update and how it falls into tensors, some of them empty."""
    rng = np.random.default_rng(seed)
    num_tensors, n = int(rng.integers(1, 6)), int(rng.integers(0, 200))
    starts = np.array([0, *np.sort(rng.integers(0, n + 1, num_tensors - 1)), n])
    wire = Wire(value_bits=64, num_weights=n + int(rng.integers(0, 1000)) + 1, num_tensors=num_tensors)
    values = rng.normal(size=n) * 10.0 ** rng.integers(-6, 3)
    values[rng.random(n) < 0.2] = 0.0  # dead ReLUs
    return wire, values, starts, rng


# Bits and bytes


@every_member
@given(st.integers(0, 2**32 - 1))
def test_charged_bits_are_the_bits_in_the_payload(name, options, seed):
    compression = of(name, **options)
    wire, values, starts, rng = case(seed)
    message = compression.encode(wire, values, starts, rng)
    assert message.bits == compression.message_bits(wire, values.size) == int(message.bits)
    assert len(message.payload) == math.ceil(message.bits / 8)


@every_member
@given(st.integers(0, 2**32 - 1), st.sampled_from([8.0, 32.0, 36.5, 64.0, 100.0]))
def test_the_planners_line_is_never_below_the_charge_and_meets_it_at_the_full_model(name, options, seed, value_bits):
    compression = of(name, **options)
    rng = np.random.default_rng(seed)
    num_weights = int(rng.integers(1, 100_000))
    wire = Wire(value_bits=value_bits, num_weights=num_weights, num_tensors=int(rng.integers(1, 9)))
    per_weight, fixed = compression.line(wire)
    for n in {0, 1, int(rng.integers(0, num_weights + 1)), num_weights}:
        assert compression.message_bits(wire, n) <= (per_weight * n + fixed) * (1 + 1e-15)
    # Top-k rounds k down and adds at most one entry.
    one_entry = value_bits + 17
    assert per_weight * num_weights + fixed - compression.message_bits(wire, num_weights) < 2 * one_entry


@every_member
@given(st.integers(0, 2**32 - 1))
def test_decoding_needs_only_the_bytes(name, options, seed):
    compression = of(name, **options)
    wire, values, starts, rng = case(seed)
    message = compression.encode(wire, values, starts, rng)
    same_bytes = Message(bytes(bytearray(message.payload)), 0.0, values.size)
    decoded = compression.decode(wire, same_bytes, starts)
    np.testing.assert_array_equal(decoded, compression.decode(wire, message, starts))
    assert decoded.shape == values.shape and decoded.dtype == np.float64
    if name == "sign":
        assert np.all(decoded[values != 0] * values[values != 0] >= 0)
    elif name in ("top-k", "random-k"):
        factor = values.size / max(compression.num_sent(values.size), 1) if name == "random-k" else 1.0
        np.testing.assert_allclose(decoded[decoded != 0], (factor * values)[decoded != 0], rtol=1e-12)
    elif name in ("rounded", "ternary", "ladder"):
        assert np.sum((decoded - values) ** 2) <= np.sum(values**2) * (1 + 1e-12)  # never loses more than it was given
    else:
        length = np.linalg.norm(values) if options.get("norm") == "l2" else np.abs(values).max(initial=0)
        step = {"exact": 0, "float32": 2**-24, "bfloat16": 2**-8, "float16": 2**-11}.get(options.get("format"))
        if step is None:
            step = 1 / compression.num_levels
        smallest_half = 2**-25  # float16 below its normal range
        assert np.all(np.abs(decoded - values) <= step * length * (1 + 1e-12) + smallest_half * (name == "cast"))


@each_member
def test_the_same_generator_gives_the_same_bytes(name, options):
    compression = of(name, **options)
    _, values, starts, _ = case(1)
    wire = Wire(value_bits=64, num_weights=500, num_tensors=starts.size - 1)
    first, second = (compression.encode(wire, values, starts, np.random.default_rng(3)) for _ in range(2))
    assert first == second


@each_member
def test_a_payload_of_another_length_is_refused(name, options):
    compression = of(name, **options)
    wire, values, starts, rng = case(2)
    message = compression.encode(wire, values, starts, rng)
    for payload in (message.payload[:-1], message.payload + b"\0", b""):
        with pytest.raises(InvalidValue, match=r"Message\.payload must have"):
            compression.decode(wire, Message(payload, message.bits, values.size), starts)


def test_levels_and_indices_out_of_range_are_refused():
    starts, wire = np.array([0, 3]), Wire(value_bits=64, num_weights=4, num_tensors=1)
    compression = of("quantised", levels=4)  # 3 bits could say 7
    with pytest.raises(InvalidValue, match="levels up to 4"):
        compression.decode(wire, Message(bytes(8) + pack(np.array([0, 7, 0]), 4), 76, 3), starts)
    compression = of("top-k", count=1)
    with pytest.raises(InvalidValue, match="indices below 3"):
        compression.decode(wire, Message(bytes(8) + pack(np.array([3]), 2), 66, 3), starts)


def test_more_weights_than_the_model_has_are_refused():
    compression = of("top-k")
    wire = Wire(value_bits=64, num_weights=4, num_tensors=1)
    with pytest.raises(InvalidValue, match=r"Wire\.num_weights must be ≥ the 5 weights of the update, got 4"):
        transmit(compression, wire, np.ones(5), np.array([0, 5]), None, None)


@given(st.integers(0, 64), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_packed_numbers_are_their_binary_digits_in_a_row(width, count, seed):
    rng = random.Random(seed)
    numbers = [rng.getrandbits(width) if width else 0 for _ in range(count)]
    digits = "".join(f"{number:0{width}b}" if width else "" for number in numbers)
    padded = digits + "0" * (-len(digits) % 8)
    packed = pack(np.array(numbers, dtype=np.uint64), width)
    assert packed == bytes(int(padded[i : i + 8], 2) for i in range(0, len(padded), 8))
    assert unpack(packed, width, count).tolist() == numbers


@pytest.mark.parametrize("levels,expected", [(1, 2), (2, 3), (4, 4), (16, 6), (256, 10)])
def test_bits_of_s_levels_are_as_published(levels, expected):
    compression = of("quantised", levels=levels)
    assert compression.line(PAPER) == (expected, 64 * 4)
    assert compression.message_bits(PAPER, 1000) == 1000 * expected + 256


@each("bits", range(2, 17))
def test_bits_count_the_sign_and_are_all_used(bits):
    compression = of("quantised", bits=bits)
    assert compression.code_bits == bits
    assert compression.num_levels == 2 ** (bits - 1) - 1


def test_top_k_charges_a_value_and_sixteen_bits_of_index_in_the_papers_network():
    compression = of("top-k", count=100)
    assert compression.message_bits(PAPER, 43_888) == 100 * (64 + 16)
    assert compression.line(PAPER) == (0.0, 8000.0)
    assert compression.message_bits(PAPER, 60) == 60 * 64  # all of them: nothing to say which


def test_top_k_never_takes_more_bits_than_the_whole_update():
    """80 k ≥ 64 · 43,888 from k = 35,111 on: then all entries are sent, without places, and none is left for later."""
    values = np.random.default_rng(0).normal(size=43_888)
    for count, bits in ((35_110, 35_110 * 80), (35_111, 43_888 * 64), (43_888, 43_888 * 64)):
        compression = of("top-k", count=count)
        assert compression.message_bits(PAPER, 43_888) == bits <= compression.line(PAPER)[1]
        sent, message, left = transmit(compression, PAPER, values, np.array([0, 43_888]), np.zeros(43_888), None)
        assert message.bits == bits == 8 * len(message.payload)
        assert np.count_nonzero(sent) == (count if count == 35_110 else 43_888)
        assert left.any() == (count == 35_110)
    for share in (0.5, 0.79, 0.8, 0.81, 1.0):
        compression = of("top-k", share=share)
        per_weight, fixed = compression.line(PAPER)
        for size in (1, 2, 99, 43_888):
            assert compression.message_bits(PAPER, size) <= min(64 * size, per_weight * size + fixed)


@pytest.mark.parametrize("rate_mbps,expected", [(240, 29_414), (200, 24_512)])
def test_largest_k_before_the_deadline_on_three_devices(rate_mbps, expected):
    """Equal shares, a = 40 / 3 GHz, 30 ms: k = ⌊b r (T − a W) / (q + ⌈log2 W⌉)⌋, found by trying.

    At 300 Mbit/s the whole update fits.
    """
    budget_bits = rate_mbps * 1e6 / 3 * (0.030 - 40 / 3e9 * 43_888)

    def fits(k):
        return of("top-k", count=k).message_bits(PAPER, 43_888) <= budget_bits

    assert fits(expected) and not fits(expected + 1)


def test_signs_cost_one_bit_and_a_scale_per_tensor_unless_it_is_fixed():
    assert of("sign").message_bits(PAPER, 1000) == 1256
    assert of("sign", scale=0.1).message_bits(PAPER, 1000) == 1000


@pytest.mark.parametrize("name,bits", [("exact", 36), ("float32", 32), ("bfloat16", 16), ("float16", 16)])
def test_cast_charges_its_format_and_exact_what_the_scenario_says(name, bits):
    compression = of("cast", format=name)
    wire = Wire(value_bits=36, num_weights=100, num_tensors=2)
    assert compression.line(wire) == (bits, 0)
    assert compression.message_bits(wire, 10) == 10 * bits


@pytest.mark.parametrize("value_bits,dtype", [(64, "<f8"), (36, "<f8"), (32, "<f4"), (16, "<f4")])
def test_top_k_values_travel_in_the_next_real_format(value_bits, dtype):
    wire = Wire(value_bits=value_bits, num_weights=256, num_tensors=1)
    compression = of("top-k", count=2)
    message = compression.encode(wire, np.array([0.1, -0.3, 0.2]), np.array([0, 3]), None)
    assert message.payload == np.array([-0.3, 0.2], dtype).tobytes() + bytes([1, 2])
    assert message.bits == 2 * (value_bits + 8)


# Rounding


def test_quantiser_example_with_all_uniforms_at_three_tenths():
    decoded, bits, _ = ap.compress([3, -4, 0, 0], "quantised", levels=4, norm="l2", rng=Uniforms(0.3))
    assert decoded.tolist() == [3.75, -3.75, 0, 0]
    assert bits == 4 * 4 + 64


@pytest.mark.parametrize(
    "norm,levels,scale,squared_error", [("l2", 1, 5, 10), ("l2", 4, 5, 0.625), ("max", 1, 4, 3), ("max", 4, 4, 0)]
)
def test_quantiser_is_right_on_average_over_all_outcomes(norm, levels, scale, squared_error):
    """x = (3, 4). An entry goes up with probability frac(s |x| / scale), whatever the other does."""
    x = np.array([3.0, 4.0])
    fractions = [math.modf(levels * entry / scale)[0] for entry in x]
    mean, error, total = np.zeros(2), 0.0, 0.0
    for ups in itertools.product([True, False], repeat=2):
        probability = math.prod(f if up else 1 - f for f, up in zip(fractions, ups, strict=True))
        uniforms = Uniforms(*(0.0 if up else 1 - 2**-53 for up in ups))
        decoded, _, _ = ap.compress(x, "quantised", levels=levels, norm=norm, rng=uniforms)
        mean += probability * decoded
        error += probability * np.sum((decoded - x) ** 2)
        total += probability
    assert total == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(mean, x, rtol=1e-14)
    assert error == pytest.approx(squared_error, rel=1e-13, abs=1e-13)
    if norm == "l2" and levels == 1:
        assert squared_error == 5 * 7 - 25  # ‖x‖ ‖x‖₁ − ‖x‖²


def test_coin_decides_at_the_fraction():
    """y = 2.4: up if u < 0.4, as published."""
    for uniform, expected in ((0.39, 3.75), (0.41, 2.5)):
        decoded, _, _ = ap.compress([3, -4], "quantised", levels=4, norm="l2", rng=Uniforms(uniform))
        assert decoded[0] == expected


def test_very_many_levels_give_the_update_back():
    delta = np.random.default_rng(0).normal(size=500)
    for norm in ("l2", "max"):
        decoded, _, _ = ap.compress(delta, "quantised", levels=2**40, norm=norm, rng=0)
        np.testing.assert_allclose(decoded, delta, atol=1e-9)


def test_nearest_levels_draw_nothing_and_are_at_most_half_a_step_away():
    delta = np.random.default_rng(0).normal(size=500)
    decoded, _, _ = ap.compress(delta, "quantised", bits=4, stochastic=False)
    assert np.abs(decoded - delta).max() <= np.abs(delta).max() / 7 / 2 * (1 + 1e-12)


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_each_tensor_has_its_own_scale_and_zeros_stay_zero(norm):
    compression = of("quantised", bits=3, norm=norm)
    wire, starts = Wire(value_bits=64, num_weights=9, num_tensors=4), np.array([0, 1, 1, 2, 4])
    values = np.array([1e-6, -1e3, 0.0, -0.0])
    message = compression.encode(wire, values, starts, np.random.default_rng(0))
    decoded = compression.decode(wire, message, starts)
    assert decoded.tolist() == [1e-6, -1e3, 0.0, 0.0]
    assert not np.signbit(decoded[2:]).any()


@pytest.mark.parametrize("size", [1e-300, 1e-320, 1e200, 1e307])
@pytest.mark.parametrize("norm", ["max", "l2"])
def test_tiny_and_huge_updates_are_quantised_like_others(norm, size):
    decoded, _, _ = ap.compress(np.array([3.0, -4.0]) * size, "quantised", levels=5, norm=norm, stochastic=False)
    plain, _, _ = ap.compress([3.0, -4.0], "quantised", levels=5, norm=norm, stochastic=False)
    np.testing.assert_allclose(decoded, plain * size, rtol=1e-3)  # 1e-320 has ten bits


def nearest_bfloat16(value):
    """All bfloat16 numbers sorted by distance, the even pattern first; a slow way that shares nothing with the code."""
    patterns = np.arange(0x7F80, dtype=np.uint32)
    numbers = (patterns << 16).view(np.float32).astype(np.float64)
    distance = np.abs(numbers - abs(value))
    best = int(patterns[np.lexsort((patterns & 1, distance))[0]])
    overflow = abs(value) >= numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    return (0x7F80 if overflow else best) | (0x8000 if math.copysign(1, value) < 0 else 0)


@given(
    st.floats(allow_nan=False, allow_infinity=False, width=32), st.sampled_from([0, 1e-9, -1e-9, 2.0**-8, 3 * 2.0**-8])
)
def test_bfloat16_is_the_nearest_with_ties_to_even(value, nudge):
    value = value * (1 + nudge)
    assert int(bfloat16_bits(np.array([value]))[0]) == nearest_bfloat16(value)


def test_bfloat16_is_not_rounded_twice():
    """1 + 2^-8 is a tie, which goes to the even 1; a little more must go up, but float32 cannot hold a little more."""
    above = 1 + 2.0**-8 + 2.0**-40
    decoded, _, _ = ap.compress([1 + 2.0**-8, above, -above], "cast", format="bfloat16")
    assert decoded.tolist() == [1, 1 + 2.0**-7, -1 - 2.0**-7]


@pytest.mark.parametrize("name,limit", [("float32", 3.5e38), ("bfloat16", 3.4e38), ("float16", 65_520)])
def test_cast_beyond_the_range_arrives_as_infinity(name, limit):
    decoded, _, _ = ap.compress([limit, -limit, 1.0, np.inf, np.nan], "cast", format=name)
    assert decoded[:4].tolist() == [np.inf, -np.inf, 1.0, np.inf]
    assert np.isnan(decoded[4])


def test_every_nan_stays_a_nan_in_bfloat16():
    """Rounding up the NaN with all bits set would carry into the sign and give -0."""
    patterns = np.array([0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FF0000000000001], dtype=np.uint64)
    decoded, _, _ = ap.compress(patterns.view(np.float64), "cast", format="bfloat16")
    assert np.isnan(decoded).all()


def test_float16_is_not_rounded_twice():
    above = 1 + 2.0**-11 + 2.0**-40
    decoded, _, _ = ap.compress([1 + 2.0**-11, above], "cast", format="float16")
    assert decoded.tolist() == [1, 1 + 2.0**-10]


def test_sign_of_zero_is_a_fair_coin():
    decoded, _, _ = ap.compress(np.zeros(20_000), "sign", scale=1.0, rng=0)
    assert set(decoded) == {-1.0, 1.0}
    assert abs(decoded.mean()) < 5 / math.sqrt(20_000)  # five standard deviations
    up, _, _ = ap.compress([0.0, -0.0], "sign", scale=1.0, rng=Uniforms(0.2, 0.7))
    assert up.tolist() == [1, -1]


def test_signs_stand_for_the_mean_magnitude_of_their_tensor():
    compression = of("sign")
    wire, starts = Wire(value_bits=64, num_weights=9, num_tensors=3), np.array([0, 2, 2, 5])
    message = compression.encode(wire, np.array([1, -3, 0.5, 0.25, -0.75]), starts, Uniforms(0.0))
    assert compression.decode(wire, message, starts).tolist() == [2, -2, 0.5, 0.5, -0.5]


def test_equal_magnitudes_go_to_the_lowest_index():
    assert largest(np.array([1.0, -2.0, 2.0, -2.0, 1.0]), 2).tolist() == [1, 2]
    assert largest(np.array([1.0, -2.0, 2.0, -2.0, 1.0]), 4).tolist() == [0, 1, 2, 3]


@given(st.integers(0, 2**32 - 1))
def test_largest_entries_are_those_of_a_stable_sort(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-5, 6, int(rng.integers(1, 50))).astype(float)
    count = int(rng.integers(1, values.size + 1))
    by_sorting = sorted(range(values.size), key=lambda j: (-abs(values[j]), j))[:count]
    assert largest(values, count).tolist() == sorted(by_sorting)


@pytest.mark.parametrize(
    "share,n,expected", [(0.29, 100, 29), (0.1, 30, 3), (0.01, 43_888, 438), (0.1, 3, 1), (0.5, 0, 0)]
)
def test_share_counts_as_it_is_written_and_sends_at_least_one(share, n, expected):
    assert of("top-k", share=share).num_sent(n) == expected


# Error feedback


def test_mem_sgd_two_steps():
    first, _, memory = ap.compress(0.1 * np.array([3, -1, 0.5, 2]), "top-k", count=2)
    np.testing.assert_allclose(first, [0.3, 0, 0, 0.2], rtol=1e-15)
    np.testing.assert_allclose(memory, [0, -0.1, 0.05, 0], rtol=1e-15)
    second, _, memory = ap.compress(0.1 * np.array([0.2, -1.5, 0.4, 0.1]), "top-k", count=2, memory=memory)
    np.testing.assert_allclose(second, [0, -0.25, 0.09, 0], rtol=1e-15)
    np.testing.assert_allclose(memory, [0.02, 0, 0, 0.01], rtol=1e-15)


@every_member
@given(st.integers(0, 2**32 - 1))
def test_sent_and_memory_make_what_was_wanted(name, options, seed):
    compression = of(name, **options)
    wire, values, starts, rng = case(seed)
    memory = rng.normal(size=values.size).astype(np.float32)
    wanted = values + memory.astype(np.float64)
    sent, _, left = transmit(compression, wire, values, starts, memory, rng)
    assert left.dtype == np.float32
    half_a_unit = 2.0**-24 * np.abs(wanted - sent) + 2.0**-150
    assert np.all(np.abs(wanted - sent - left.astype(np.float64)) <= half_a_unit)
    if name == "top-k":
        np.testing.assert_array_equal(left[sent != 0], 0)
        np.testing.assert_array_equal(sent[sent != 0], wanted[sent != 0])


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_top_k_loses_nothing_over_many_rounds(seed, dtype):
    """Updates are multiples of 2^-10, so that every sum is exact in either dtype and nothing hides in a tolerance."""
    rng = np.random.default_rng(seed)
    compression = of("top-k", share=0.1)
    wire, starts = Wire(value_bits=64, num_weights=40, num_tensors=2), np.array([0, 10, 40])
    memory, total_sent, total_wanted = np.zeros(40, dtype), np.zeros(40), np.zeros(40)
    for _ in range(12):
        update = rng.integers(-1000, 1000, 40) / 1024
        sent, _, memory = transmit(compression, wire, update, starts, memory, rng)
        total_sent += sent
        total_wanted += update
        np.testing.assert_array_equal(total_sent + memory, total_wanted)
        assert memory.dtype == dtype


def test_without_memory_nothing_is_added_and_nothing_remembered():
    compression = of("top-k", count=1)
    wire, starts = Wire(value_bits=64, num_weights=3, num_tensors=1), np.array([0, 3])
    sent, _, left = transmit(compression, wire, np.array([1.0, 3, 2]), starts, None, None)
    assert sent.tolist() == [0, 3, 0] and left is None


def test_memory_reaches_every_weight_where_top_k_alone_never_does():
    delta, memory = np.array([1.0, 0.5, 0.2, 0.1]), None
    ever = np.zeros(4, bool)
    for _ in range(60):
        decoded, _, memory = ap.compress(delta, "top-k", count=1, memory=memory)
        ever |= decoded != 0
    alone, _, _ = ap.compress(delta, "top-k", count=1)
    assert ever.all() and np.count_nonzero(alone) == 1


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_memory_of_the_quantiser_stays_below_the_update_over_s_minus_one(bits):
    rng = np.random.default_rng(0)
    memory, num_levels = None, 2 ** (bits - 1) - 1
    for _ in range(200):
        delta = rng.standard_t(2, 400).clip(-30, 30)  # a few entries far above the rest: the hardest case for a scale
        _, _, memory = ap.compress(delta, "quantised", bits=bits, memory=memory, rng=rng)
        assert np.abs(memory).max() <= 30 / (num_levels - 1)


def test_memory_of_the_length_scaled_quantiser_diverges_so_it_is_off_unless_asked_for():
    rng, memory = np.random.default_rng(0), None
    delta = rng.normal(size=10_000)
    for _ in range(10):
        _, _, memory = ap.compress(delta, "quantised", bits=4, norm="l2", memory=memory, rng=rng)
    assert np.linalg.norm(memory) > 100 * np.linalg.norm(delta)
    assert not of("quantised", norm="l2").memory and of("quantised", norm="l2", memory=True).memory
    assert of("quantised").memory


@each_member
def test_memory_is_one_float32_per_counted_weight_of_a_device_or_nothing(name, options):
    shape = ModelShape(
        num_state=12,
        num_parameters=12,
        prunable=slice(0, 10),
        layers=PrunableLayers.of([("fc", 2, 5)]),
        tensors=(Tensor("weight", 0, 10, True), Tensor("bias", 10, 12, False)),
    )
    (slot,) = of(name, **options, memory=True).slots(shape)
    assert (slot.name, slot.owner, slot.num_bytes(shape)) == (f"{name}.error", Owner.DEVICE, 40)
    assert not slot.row(shape).any()
    assert of(name, **options, memory=False).slots(shape) == ()


class Bare(Compression):
    """Every value as float64, and nothing else said."""

    name = "bare"

    def line(self, wire):
        return 64.0, 0.0

    def message_bits(self, wire, num_weights):
        return 64.0 * num_weights

    def encode(self, wire, values, starts, rng):
        return Message(values.tobytes(), self.message_bits(wire, values.size), values.size)

    def decode(self, wire, message, starts):
        return np.frombuffer(message.payload)


def test_what_a_compression_does_not_say_is_one_code_for_all_that_remembers_nothing():
    bare = Bare()
    assert bare.codes(PAPER) is None and bare.ladder(PAPER) is None
    assert not bare.exact(PAPER) and bare.slots(paper_shape()) == ()


def test_a_compression_given_as_a_value_with_functions_is_told_to_be_a_class():
    with pytest.raises(UsageError, match="Compression is a class to derive from"):
        Compression(name="old", summary="old", line=Bare.line)


# Knobs fully open


@pytest.mark.parametrize("name,options", [("cast", {}), ("top-k", {"share": 1.0}), ("top-k", {"count": 5000})])
@pytest.mark.parametrize("memory", [False, True])
def test_fully_open_gives_the_trained_weights_back_to_the_bit(name, options, memory):
    compression = of(name, **options)
    rng = np.random.default_rng(0)
    wire, starts = Wire(value_bits=64, num_weights=5000, num_tensors=2), np.array([0, 1000, 5000])
    received = rng.normal(size=5000).astype(np.float32)
    trained = (received + rng.normal(size=5000) * 10.0 ** rng.integers(-9, 2, 5000)).astype(np.float32)
    trained[:100] = 0
    trained[100:200] = received[100:200]
    before = np.zeros(5000, np.float32) if memory else None
    update = trained.astype(np.float64) - received.astype(np.float64)
    sent, _, left = transmit(compression, wire, update, starts, before, rng)
    assert compression.exact(wire)
    np.testing.assert_array_equal((received.astype(np.float64) + sent).astype(np.float32), trained)
    assert left is None or not left.any()


@every_member
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 64]))
def test_codes_that_say_exact_change_nothing(name, options, seed, value_bits):
    compression = of(name, **options)
    _, values, starts, rng = case(seed)
    wire = Wire(value_bits=value_bits, num_weights=values.size + 5, num_tensors=starts.size - 1)
    if compression.exact(wire):
        message = compression.encode(wire, values, starts, rng)
        assert compression.decode(wire, message, starts).tobytes() == values.tobytes()


# A diverged update


@each_member
@each("bad", [np.nan, np.inf, -np.inf])
@each("memory", [None, np.zeros(6, np.float32)])
def test_a_diverged_update_arrives_as_such(name, options, bad, memory):
    compression = of(name, **options)
    wire, starts = Wire(value_bits=64, num_weights=6, num_tensors=2), np.array([0, 4, 6])
    values = np.array([1.0, bad, 2.0, 3.0, 4.0, 5.0])
    sent, message, left = transmit(compression, wire, values, starts, memory, np.random.default_rng(0))
    assert message.bits == compression.message_bits(wire, 6)
    if compression == of("sign", scale=0.01):
        assert np.isfinite(sent).all()  # one bit has no room for it; the memory shows it
    else:
        assert not np.isfinite(sent[1])
    assert np.isfinite(sent[4:]).all()  # the other tensor is unharmed
    assert left is None or not np.isfinite(left[1])


# ap.compress


def test_four_bit_update_in_one_call():
    delta = np.random.default_rng(0).normal(size=1000)
    decoded, bits, memory = ap.compress(delta, "quantised", bits=4, memory=None, rng=np.random.default_rng(1))
    assert bits == 4 * 1000 + 64
    assert np.unique(np.abs(decoded)).size <= 8
    np.testing.assert_array_equal(memory, delta - decoded)


def test_seed_and_memory_dtype_are_taken_as_given():
    delta = np.random.default_rng(0).normal(size=50).astype(np.float32)
    first, second = (ap.compress(delta, "quantised", rng=7)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert ap.compress(delta, "top-k", memory=np.zeros(50, np.float32))[2].dtype == np.float32
    assert ap.compress(delta, "top-k", memory=[0] * 50)[2].dtype == np.float64
    assert delta.dtype == np.float32


def test_inputs_are_left_alone():
    delta, memory = np.arange(5.0), np.ones(5)
    for name, options in MEMBERS:
        decoded, _, left = ap.compress(delta, name, memory=memory, rng=0, **options)
        decoded[:] = left[:] = 9
    assert delta.tolist() == [0, 1, 2, 3, 4] and memory.tolist() == [1] * 5


@each_member
@each("size", [0, 1])
def test_the_smallest_updates_pass(name, options, size):
    decoded, _, memory = ap.compress(np.ones(size), name, rng=0, **options)
    assert decoded.shape == memory.shape == (size,)


@each(
    "arguments,options,sentence",
    [
        (([1.0], "quantized"), {}, "compression 'quantized' is unknown; did you mean 'quantised'? known: cast, quant"),
        (([1.0], 3), {}, "compress.name must be the name of a compression, got 3"),
        (([[1.0]], "sign"), {}, "compress.delta must be a one-dimensional array of real numbers, got float64 of shape"),
        ((["a"], "sign"), {}, "compress.delta must be a one-dimensional array of real numbers, got <U1 of shape"),
        (([1j], "sign"), {}, "compress.delta must be a one-dimensional array of real numbers, got complex128"),
        (
            ([[1], [1, 2]], "sign"),
            {},
            "compress.delta must be a one-dimensional array of real numbers, got [[1], [1, 2]]",
        ),
        ((1.0, "sign"), {}, "compress.delta must be a one-dimensional array of real numbers, got float64 of shape ()"),
        (([1.0], "sign"), {"rng": math.nan}, "compress.rng must be a whole number ≥ 0, got nan"),
        (([1.0], "sign"), {"rng": -1}, "compress.rng must be a whole number ≥ 0, got -1"),
        (([1.0], "sign"), {"rng": random.Random(0)}, "compress.rng must be a whole number ≥ 0, got <random.Random"),
        (([1.0], "sign"), {}, "compress.rng must be given, because this compressor is stochastic, got None"),
        (([1.0], "quantised"), {}, "compress.rng must be given, because this compressor is stochastic, got None"),
        (([1.0], "top-k"), {"memory": [1, 2]}, "compress.memory must have as many entries as delta, 1, got 2"),
        (
            ([1.0], "top-k"),
            {"memory": True},
            "compress.memory must be a one-dimensional array of real numbers, got true",
        ),
        (([1.0], "top-k"), {"value_bits": 0}, "compress.value_bits must be > 0, got 0"),
        (([1.0], "top-k"), {"value_bits": [1, 2]}, "compress.value_bits must be one number"),
        (([1.0], "top-k"), {"share": 0}, 'Scenario.compression.top-k.share must be > 0 and ≤ 1 or "none", got 0'),
        (([1.0], "top-k"), {"share": 1.5}, 'Scenario.compression.top-k.share must be > 0 and ≤ 1 or "none", got 1.5'),
        (
            ([1.0], "top-k"),
            {"share": 0.5, "count": 3},
            "Scenario.compression.top-k.share or count must be given, and not",
        ),
        (
            ([1.0], "top-k"),
            {"share": None},
            "Scenario.compression.top-k.share or count must be given, and not both, got n",
        ),
        (([1.0], "top-k"), {"shares": 1}, "Scenario.compression.top-k.shares is unknown; did you mean 'share'?"),
        (
            ([1.0], "quantised"),
            {"bits": 17},
            "Scenario.compression.quantised.bits must be a whole number in [2, 16] or",
        ),
        (([1.0], "quantised"), {"bits": 1}, "Scenario.compression.quantised.bits must be a whole number ≥ 2 or"),
        (([1.0], "quantised"), {"bits": 4.5}, "Scenario.compression.quantised.bits must be a whole number ≥ 2 or"),
        (([1.0], "quantised"), {"bits": 4, "levels": 4}, "Scenario.compression.quantised.bits or levels must be given"),
        (
            ([1.0], "quantised"),
            {"norm": "l1"},
            "Scenario.compression.quantised.norm 'l1' is unknown; known: max, l2.",
        ),
        (([1.0], "cast"), {"format": "bf16"}, "Scenario.compression.cast.format 'bf16' is unknown; did you mean"),
        (([1.0], "sign"), {"scale": -1}, 'Scenario.compression.sign.scale must be "mean" or > 0, got -1'),
        (([1.0], "sign"), {"scale": "median"}, "Scenario.compression.sign.scale must be \"mean\" or > 0, got 'median'"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, options, sentence):
    with pytest.raises((InvalidValue, UnknownName)) as caught:
        ap.compress(*arguments, **options)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_compressing_needs_no_torch():
    code = "import sys, airprune as ap; ap.compress([1.0], 'top-k'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

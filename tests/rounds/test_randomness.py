import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.errors import InvalidValue
from airprune.randomness import NumberedStreams, rng_for

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=3)


def first_words(seed, stream, *key):
    return tuple(rng_for(seed, stream, *key).integers(0, 2**63, size=2).tolist())


@given(st.integers(0, 2**128 - 1), st.text(min_size=1), KEYS)
def test_the_same_address_gives_the_same_numbers(seed, stream, key):
    assert first_words(seed, stream, *key) == first_words(seed, stream, *key)


def test_other_processes_with_other_hash_seeds_see_the_same_numbers():
    script = (
        "from airprune.randomness import rng_for; print(rng_for(7, 'fading', 3, 4).integers(0, 2**63, size=2).tolist())"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(list(first_words(7, "fading", 3, 4)))


def test_seed_stream_key_and_number_of_keys_all_matter():
    addresses = [
        (0, "fading"),
        (1, "fading"),
        (0, "shadowing"),
        (0, "fadin", 0),
        (0, "fading", 0),
        (0, "fading", 0, 0),
        (0, "fading", 1),
        (0, "fading", 0, 1),
        (0, "fading", 1, 0),
        (2**32, "fading"),
        (2**96, "fading"),
    ]
    # 126 random bits each: a collision by chance is out of the question.
    assert len({first_words(*address) for address in addresses}) == len(addresses)


def test_large_keys_do_not_spill_into_the_next_key():
    # SeedSequence spells both as the words 0, 1 when keys are handed over as they are.
    assert first_words(0, "fading", 2**32) != first_words(0, "fading", 0, 1)


def test_neighbouring_streams_are_uncorrelated():
    count = 20_000
    draws = [rng_for(0, "fading", key).standard_normal(count) for key in range(4)]
    draws += [rng_for(1, "fading", 0).standard_normal(count), rng_for(0, "cpu", 0).standard_normal(count)]
    worst = max(abs(np.mean(x * y)) for x, y in itertools.combinations(draws, 2))
    assert worst < 5 / np.sqrt(count)  # five standard errors; the seeds are fixed


@pytest.mark.parametrize(("seed", "key"), [(-1, ()), (0.5, ()), (2**128, ()), (0, (-1,)), (0, (1.0,)), (0, (2**64,))])
def test_seeds_and_keys_are_whole_and_not_negative(seed, key):
    with pytest.raises(InvalidValue, match=r"rng_for\.(seed|key) must be a whole number ≥ 0"):
        rng_for(seed, "fading", *key)


@pytest.mark.parametrize("stream", ["", 3])
def test_a_stream_has_a_name(stream):
    with pytest.raises(InvalidValue, match=r"rng_for\.stream"):
        rng_for(0, stream)


def test_numbered_streams_are_repeatable_and_all_different():
    def draw(seed, stream, key, number):
        return tuple(NumberedStreams(seed, stream, *key)[number].integers(0, 2**63, size=2).tolist())

    addresses = [(0, "device", (0, 0), n) for n in (0, 1, 2, 2**32, 2**63)]
    addresses += [(1, "device", (0, 0), 0), (0, "layers", (0, 0), 0), (0, "device", (0, 1), 0), (0, "device", (), 0)]
    assert len({draw(*address) for address in addresses}) == len(addresses)
    assert [draw(*address) for address in addresses] == [draw(*address) for address in addresses]


def test_a_numbered_stream_starts_where_philox_is_after_number_times_2_to_the_128_draws():
    streams = NumberedStreams(5, "device", 3)
    far = streams[0].bit_generator.advance(7 * 2**128)
    assert np.array_equal(far.random_raw(9), streams[7].bit_generator.random_raw(9))


def test_a_moving_generator_draws_what_each_numbered_stream_draws():
    streams = NumberedStreams(7, "device", 3)
    for number in (5, 0, 5, 2**40):
        moved, own = streams.at(number), streams[number]
        assert np.array_equal(moved.permutation(7), own.permutation(7))
        assert moved.integers(2**20, dtype=np.uint32) == own.integers(
            2**20, dtype=np.uint32
        )  # leaves half a draw behind
        assert moved.random() == own.random()

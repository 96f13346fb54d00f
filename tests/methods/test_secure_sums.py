"""Secure sums: exact against plain ones, dropouts, what a share tells, and every byte and second that is charged."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import airprune as ap
from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.secure import keys as cryptography
from airprune.methods.secure import shamir
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.exchange import Member, Sizes, secrets_in, survivor_bits
from airprune.methods.secure.fixed_point import FixedPoint
from airprune.rounds.cohorts import cohort_of
from airprune.rounds.experiment import Experiment
from airprune.theory.privacy import privacy_notes
from support.tiny import blobs, last_state, timed_rounds, tiny_scenario

SECURE = {"method": "secure-sums", "network.devices_per_edge": 10, "plan.bits_per_weight": 32.0}


def cohort(num_devices, *, word_bits=32, threshold=None, limit=1.0):
    fixed = FixedPoint(word_bits, num_devices, limit)
    least = num_devices // 2 + 1 if threshold is None else threshold
    return SecureCohort(devices=tuple(range(100, 100 + num_devices)), threshold=least, fixed=fixed, secret=b"s" * 32)


def secure_scenario(**changes):
    return tiny_scenario(**changes).with_values(SECURE)


def model_of(scenario):
    """Returns the cloud's model at the end of a run."""
    return last_state(scenario)[0].global_state


# Shamir's shares


def test_the_field_is_of_a_prime_above_all_secrets():
    """Miller–Rabin with forty random bases: a composite passes with probability below 2⁻⁸⁰."""
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (random.Random(n).randrange(2, shamir.PRIME - 1) for n in range(40)):
        x = pow(base, odd, shamir.PRIME)
        powers = [pow(x, 2**n, shamir.PRIME) for n in range(twos)]
        assert x == 1 or shamir.PRIME - 1 in powers
    assert 2**256 < shamir.PRIME < 2 ** (8 * shamir.SHARE_BYTES)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 9), st.integers(0, 6), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_any_threshold_shares_give_the_secret_back(secret, threshold, more, rng):
    shares = shamir.split(secret, threshold, threshold + more, rng.randbytes)
    points = rng.sample(range(1, threshold + more + 1), threshold)
    weights = shamir.weights_at_zero(points)
    assert shamir.combine({x: shares[x - 1] for x in points}, weights) == secret


def test_one_share_too_few_fits_every_secret_equally_well():
    """Over a field, t − 1 shares and any assumed secret determine one polynomial: each secret has just one."""
    rng = random.Random(1)
    shares = shamir.split(bytes(32), 3, 5, rng.randbytes)
    for secret in (0, 1, 2**200):
        # The third share that would make this the secret, by Lagrange through 0, 1 and 2.
        through = {0: secret, 1: shares[0], 2: shares[1]}
        third = sum(
            y * np.prod([(3 - b) for b in through if b != a], dtype=object)
            * pow(int(np.prod([(a - b) for b in through if b != a], dtype=object)), -1, shamir.PRIME)
            for a, y in through.items()
        ) % shamir.PRIME  # fmt: skip
        weights = shamir.weights_at_zero([1, 2, 3])
        assert shamir.combine({1: shares[0], 2: shares[1], 3: int(third)}, weights) == secret.to_bytes(32)


# Keys


def test_both_ends_derive_the_same_key_and_another_for_each_purpose():
    first, second = bytes(range(32)), bytes(range(32, 64))
    one = cryptography.agree(first, cryptography.public_key(second), b"x")
    assert one == cryptography.agree(second, cryptography.public_key(first), b"x")
    assert one != cryptography.agree(first, cryptography.public_key(second), b"y") and len(one) == 32


def test_a_mask_is_the_key_stream_of_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero."""
    words = cryptography.mask(bytes(32), 4, np.dtype("u4"))
    assert words.tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_a_public_key_that_forces_the_secret_is_refused():
    with pytest.raises(WorkFailed, match="no secret can be agreed on"):
        cryptography.agree(bytes(range(32)), bytes(32), b"x")


# Fixed point


@given(
    st.integers(1, 40),
    st.integers(10, 64),
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_a_sum_modulo_2_to_the_k_is_the_sum_of_the_whole_numbers(num_devices, word_bits, entries):
    """Also where every device sends its largest number: the headroom suffices."""
    fixed = FixedPoint(word_bits, num_devices, 1.0)
    whole = fixed.whole(np.array(entries))
    total = np.zeros(len(whole), dtype=fixed.dtype)
    for _ in range(num_devices):
        total = fixed.reduced(total + fixed.words(whole))
    assert fixed.signed(total).tolist() == [num_devices * int(x) for x in whole]
    assert np.abs(whole * fixed.step - np.clip(entries, -1, 1)).max() <= fixed.step * 0.5000001


def test_an_update_that_is_not_finite_counts_as_none():
    assert FixedPoint(32, 3, 1.0).whole(np.array([0.5, np.nan, 1.0])).tolist() == [0, 0, 0]


# The exchange


@pytest.mark.parametrize(("num_devices", "word_bits"), [(2, 32), (3, 64), (10, 32), (10, 20), (17, 64)])
def test_sums_are_exact_with_thirty_percent_dropouts(num_devices, word_bits):
    rng, group = np.random.default_rng(num_devices), cohort(num_devices, word_bits=word_bits)
    whole = {device: group.fixed.whole(rng.normal(size=500)) for device in group.devices}
    lost = rng.permutation(group.devices)[: int(0.3 * num_devices)]
    survivors = [device for device in group.devices if device not in lost]
    words = np.zeros(500, dtype=group.fixed.dtype)
    for device in survivors:
        words = words + group.masked(device, whole[device])
    assert np.array_equal(group.opened(words, survivors), sum(whole[device] for device in survivors))


def test_every_message_has_the_bytes_that_are_charged():
    group = cohort(10)
    _, messages = group.exchange(group.devices[2:], 3)
    counted = {name: Counter(len(message) for message in sent) for name, sent in messages.items()}
    sizes = Sizes(10)
    assert counted == {
        "keys": {sizes.keys: 10},
        "all_keys": {sizes.all_keys: 1},
        "shares": {sizes.shares: 10},
        "survivors": {sizes.survivors: 1},
        "revealed": {sizes.revealed: 8},
    }
    assert sizes.keys == 3 * 32 + 64 and sizes.shares == 9 * (2 * 33 + 16) and sizes.revealed == 10 * 33  # by hand


def test_communication_grows_as_the_source_says():
    """Bonawitz et al.: 1.73 times the values of 16 bits for 2¹⁰ devices and 2²⁰ values, 1.98 for 2¹⁴ and 2²⁴."""
    for num_devices, num_values, theirs in ((2**10, 2**20, 1.73), (2**14, 2**24, 1.98)):
        sizes, word_bits = Sizes(num_devices), 16 + int(np.log2(num_devices))
        sent = num_values * word_bits / 8 + sizes.keys + sizes.shares + sizes.revealed
        assert sent / (num_values * 2) == pytest.approx(theirs, rel=0.04)  # their shares are a little longer


def test_what_an_edge_receives_of_one_device_looks_uniform():
    """Words of an update of zeros, and of the largest: χ² of their top byte, 255 degrees of freedom, beyond 1e-6."""
    group = cohort(5)
    for entry in (0.0, 1.0):
        words = group.masked(group.devices[1], group.fixed.whole(np.full(20_000, entry)))
        seen = np.bincount(words >> 24, minlength=256)
        assert ((seen - 20_000 / 256) ** 2 / (20_000 / 256)).sum() < 380


def test_masks_of_another_round_leave_the_sum_hidden():
    group = cohort(4)
    other = SecureCohort(devices=group.devices, threshold=3, fixed=group.fixed, secret=b"t" * 32)
    words = sum(group.masked(device, np.ones(50, dtype=np.int64)) for device in group.devices)
    assert not np.array_equal(other.opened(words, group.devices), np.full(50, 4))


def members(num_devices, threshold):
    rng = random.Random(7)
    return [Member(n, threshold, rng.randbytes) for n in range(num_devices)]


def keys_of(devices):
    """Without signatures, which the exchange itself does not look at."""
    return {member.number: member.keys() + bytes(64) for member in devices}


def test_a_device_answers_no_second_list_and_none_below_the_threshold():
    devices = members(4, 3)
    keys = keys_of(devices)
    shares = [member.share(keys) for member in devices]
    first = devices[0]
    first.receive(keys, {n: shares[n][0] for n in (1, 2, 3)})
    with pytest.raises(WorkFailed, match="needs 3 devices, and the edge has named 2"):
        first.reveal(survivor_bits([0, 1], 4), 4)
    assert len(first.reveal(survivor_bits([0, 1, 2], 4), 4)) == Sizes(4).revealed
    with pytest.raises(WorkFailed, match="answers once"):
        first.reveal(survivor_bits([0, 1, 3], 4), 4)


def test_a_share_that_was_changed_or_redirected_is_refused():
    devices = members(3, 2)
    keys = keys_of(devices)
    to_second, to_third = devices[0].share(keys).values()
    devices[1].share(keys)
    for sealed in (to_third, to_second[:-1] + bytes([to_second[-1] ^ 1])):
        with pytest.raises(WorkFailed, match="changed on its way, or is for another device"):
            devices[1].receive(keys, {0: sealed})


# Runs


def test_a_run_ends_in_the_very_model_of_the_same_sums_in_the_clear():
    changes = {"events.dropout_probability": 0.3}
    hidden = secure_scenario().with_values(changes)
    clear = hidden.with_("aggregation.secure-sum.masked", False)
    (ours, our_records, _), (theirs, their_records, _) = last_state(hidden), last_state(clear)
    assert np.array_equal(ours.global_state, theirs.global_state) and our_records == their_records
    assert {fate for record in our_records for fate in record.get("fate", ())} == {"ok", "dropped"}


def test_fixed_point_changes_the_mean_by_half_a_step_at_the_most():
    """One edge round of one edge: against the plain mean in float64."""
    one = {"rounds.global_rounds": 1, "rounds.edge_rounds": 1, "network.num_edges": 1, "model.float64": True}
    hidden = secure_scenario().with_values(one)
    plain = hidden.with_values({"method": "hierfavg", "aggregation.edge": "masked-mean"})
    step = FixedPoint(32, 10, 1.0).step
    gap = np.abs(model_of(hidden) - model_of(plain))
    assert 0.0 < gap.max() <= 0.51 * step


def test_below_the_threshold_the_edge_keeps_its_model():
    scenario = secure_scenario().with_values({"events.dropout_probability": 0.9, "rounds.global_rounds": 1})
    start = Experiment.of(scenario, dataset=blobs()).initial_state().global_state
    records = list(ap.run(scenario, dataset=blobs()))
    edges = [record for record in records if record["kind"] == "edge"]
    assert all(sum(fate == "ok" for fate in record["fate"]) < 6 for record in edges)  # of either edge's ten
    assert all(row["num_uncovered"] for record in edges for row in record["coverage"])
    assert all(record["exchange_bits"] == 20 * 8 * (Sizes(10).keys + Sizes(10).shares) for record in edges)
    assert np.array_equal(model_of(scenario), start)


def test_uploaded_bits_are_words_and_the_messages_of_the_exchange():
    """Recorded bits of a round with dropouts: 32 for each weight that arrived, and the bytes of the real messages.

    One edge hears from five of ten devices only, and does not ask for shares.
    """
    scenario = secure_scenario().with_("events.dropout_probability", 0.3)
    experiment = Experiment.of(scenario, dataset=blobs())
    record = next(iter(ap.run(scenario, dataset=blobs())))
    exchanged = 0
    for edge in record["edge_id"]:
        here = [n for n, e in zip(record["device"], record["edge"], strict=True) if e == edge]
        arrived = [n for n, fate in zip(record["device"], record["fate"], strict=True) if fate == "ok" and n in here]
        group = SecureCohort(devices=tuple(here), threshold=2, fixed=FixedPoint(32, len(here), 1.0), secret=b"s" * 32)
        _, messages = group.exchange(arrived, 1)
        names = ("keys", "shares", "revealed") if len(arrived) >= 6 else ("keys", "shares")
        exchanged += sum(len(message) for name in names for message in messages[name])
    assert record["exchange_bits"] == 8 * exchanged
    arrived = sum(fate == "ok" for fate in record["fate"])
    assert 0 < arrived < 20
    assert record["uploaded_bits"] == 32 * experiment.shape.num_weights * arrived + 8 * exchanged


def test_a_round_lasts_longer_by_the_slowest_device_of_each_exchange():
    changes = {"radio.downlink": "broadcast"}
    hidden = secure_scenario().with_values(changes)
    plain = hidden.with_("aggregation.edge", "masked-mean")
    ours, theirs = (next(iter(ap.run(scenario, dataset=blobs()))) for scenario in (hidden, plain))
    weights, sizes = Experiment.of(plain, dataset=blobs()).shape.num_weights, Sizes(10)
    for place, edge in enumerate(ours["edge_id"]):
        uplink_s = [s for s, e in zip(theirs["uplink_s"], theirs["edge"], strict=True) if e == edge]
        slowest_s = max(uplink_s) * 8 * (sizes.keys + sizes.shares + sizes.revealed) / (32 * weights)
        assert ours["exchange_s"][place] == pytest.approx(slowest_s, rel=1e-12)
        longer_s = ours["edge_latency_s"][place] - theirs["edge_latency_s"][place]
        down_s = ours["downlink_s"][place] - theirs["downlink_s"][place]
        assert longer_s == pytest.approx(slowest_s + down_s, rel=1e-9) and down_s > 0
    down_bytes = sizes.all_keys + sizes.survivors + 10 * sizes.shares
    assert ours["downlink_bits"] - theirs["downlink_bits"] == 2 * 8 * down_bytes
    assert ours["energy_j"] > theirs["energy_j"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"plan.scheme": "optimal"}, "whose devices send different weights"),
        ({"aggregation.cloud": "secure-sum"}, "not models at the cloud"),
        ({"objective.name": "scaffold"}, "report more of their data"),
        ({"aggregation.rollback": 10.0}, "measures every update"),
        ({"topology.name": "d2d"}, "do not upload together"),
        ({"compression.name": "sign"}, "must be 'cast'"),
        ({"plan.bits_per_weight": 4.0}, "must be a whole number from 5 to 64"),
        ({"plan.bits_per_weight": 16.5}, "must be a whole number"),
        ({"plan.framing": True, "plan.bits_per_weight": 24.0}, "must be 32 with plan.framing"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_does_not_go_with_secure_sums_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=sentence) as caught:
        Experiment.of(secure_scenario().with_values(changes), dataset=blobs())
    assert str(caught.value).startswith("Scenario.") and "\n" not in str(caught.value)


def test_masks_that_all_devices_share_are_summed_and_others_refused_when_they_upload():
    shared = {"method": "snip", "aggregation.edge": "secure-sum", "plan.bits_per_weight": 32.0}
    hidden = tiny_scenario().with_values({**shared, "plan.deadline_s": 0.0003})
    state, records, _ = last_state(hidden)
    assert records[-1]["mean_pruning_ratio"] > 0.1
    assert np.array_equal(state.global_state, model_of(hidden.with_("aggregation.secure-sum.masked", False)))
    own = {"method": "feddrop", "aggregation.edge": "secure-sum", "plan.deadline_s": 0.0003}
    with pytest.raises(UsageError, match=r"must give all devices of an edge the same mask .* got 'feddrop'"):
        list(ap.run(tiny_scenario().with_values(own), dataset=blobs()))


# False shares


def answers_of(num_devices, threshold, missing=()):
    """Returns (keys, answers by number, survivors) of an exchange in which some devices send no update."""
    devices = members(num_devices, threshold)
    keys = keys_of(devices)
    shares = [member.share(keys) for member in devices]
    survivors = [n for n in range(num_devices) if n not in missing]
    for n in survivors:
        devices[n].receive(keys, {m: own[n] for m, own in enumerate(shares) if m != n})
    named = survivor_bits(survivors, num_devices)
    return keys, {n: devices[n].reveal(named, num_devices) for n in survivors}, survivors


def with_false_share(answer, of):
    """An answer with another share of one device."""
    start = of * shamir.SHARE_BYTES
    return answer[:start] + bytes(32) + b"\x07" + answer[start + shamir.SHARE_BYTES :]


@pytest.mark.parametrize("num_false", [0, 1, 2, 3])
def test_a_sum_opens_as_long_as_threshold_true_shares_are_there_and_the_false_ones_are_found(num_false):
    keys, answers, survivors = answers_of(8, 4, missing=(5,))
    true = secrets_in(keys, 4, answers, survivors)
    liars = survivors[:num_false]
    lies = {n: b"\x01" * len(answer) if n in liars else answer for n, answer in answers.items()}
    found = secrets_in(keys, 4, lies, survivors)
    assert found.found == true.found and not found.lost and not true.false
    assert set(found.false) == set(liars) and all(len(whose) == 8 for whose in found.false.values())


def test_with_fewer_true_shares_than_the_threshold_no_secret_is_guessed():
    keys, answers, survivors = answers_of(5, 4)
    lies = {n: b"\x01" * len(answer) if n < 2 else answer for n, answer in answers.items()}
    found = secrets_in(keys, 4, lies, survivors)
    assert found.lost == (0, 1, 2, 3, 4) and not found.found


def test_a_device_that_has_dealt_shares_of_nothing_is_the_only_one_lost():
    keys, answers, survivors = answers_of(6, 4)
    lies = {n: with_false_share(answer, of=2) for n, answer in answers.items()}
    found = secrets_in(keys, 4, lies, survivors)
    assert found.lost == (2,) and set(found.found) == {0, 1, 3, 4, 5} and not found.false


def test_false_shares_of_many_are_found_in_a_large_group_too():
    """30 devices of which 21 answer, 16 are needed and two lie: one choice in nine of 16 has no false share."""
    keys, answers, survivors = answers_of(30, 16, missing=range(21, 30))
    lies = {n: b"\x01" * len(answer) if n in (3, 11) else answer for n, answer in answers.items()}
    found = secrets_in(keys, 16, lies, survivors)
    assert set(found.false) == {3, 11} and not found.lost


def test_devices_that_were_shown_different_lists_cannot_open_each_others_shares():
    devices, stranger = members(4, 2), members(5, 2)[4]
    keys = keys_of(devices)
    shares = devices[0].share(keys)
    devices[1].share({**keys, 3: stranger.keys() + bytes(64)})
    with pytest.raises(WorkFailed, match="changed on its way"):
        devices[1].receive(keys, {0: shares[1]})


def test_a_signature_is_of_one_key_and_one_message():
    one, other = (cryptography.signing_key(bytes([n]) * 32) for n in (1, 2))
    signature = cryptography.sign(one, b"keys")
    assert cryptography.is_signed(one.public_key(), signature, b"keys")
    assert not cryptography.is_signed(other.public_key(), signature, b"keys")
    assert not cryptography.is_signed(one.public_key(), signature, b"key")
    assert not cryptography.is_signed(one.public_key(), bytes(64), b"keys")
    assert not cryptography.is_signed(one.public_key(), signature[:-1], b"keys")


def test_a_sum_refuses_devices_that_sent_other_weights():
    """The sum itself is the last to see it, whatever a masking had announced."""
    aggregation, group, mask = AGGREGATIONS["secure-sum"](), cohort(3), np.array([True, False])
    totals = [aggregation.Sum.zeros(4, slice(2, 4)) for _ in range(2)]
    for total, sent in zip(totals, (mask, ~mask), strict=True):
        total.begin(group)
        total.add_member(np.zeros(4), sent, 1.0, is_master=True, master=100)
    with pytest.raises(InvalidValue, match="masks differ from device to device"):
        totals[0].merge(totals[1])
    with pytest.raises(InvalidValue, match="leave layers as they received them"):
        totals[0].leave_out(np.ones(4, dtype=bool), 1.0)


# With differential privacy

PRIVATE = {
    "privacy.clip_norm": 1.0,
    "privacy.noise_multiplier": 2.0,
    "privacy.noise_of": "sum",
    "aggregation.secure-sum.limit": 20.0,
}


def noise_of(scenario):
    """Returns the noise of an edge's mean in one round: against the same round with next to none.  [num_state]"""
    one = {"rounds.global_rounds": 1, "rounds.edge_rounds": 1, "network.num_edges": 1}
    loud = scenario.with_values(one)
    quiet = loud.with_values({"privacy.noise_multiplier": 1e-6, "plan.bits_per_weight": 64.0})
    return model_of(loud).astype(float) - model_of(quiet)


def test_the_sum_has_the_noise_and_at_the_threshold_no_less():
    """Ten devices add 2 C / √6 each: the sum has √(10/6) 2 C, and 2 C if six are left. 5 standard errors."""
    noise = 10 * noise_of(secure_scenario().with_values(PRIVATE))
    error = 5 / np.sqrt(2 * noise.size)
    assert noise.std() == pytest.approx(2.0 * np.sqrt(10 / 6), rel=error)


def test_the_accountant_says_to_whom_the_noise_of_sums_is_promised():
    noted = " ".join(privacy_notes(secure_scenario().with_values(PRIVATE)))
    on_updates = " ".join(privacy_notes(secure_scenario().with_values({**PRIVATE, "privacy.noise_of": "update"})))
    assert "the sums of its edge that no device helps" in noted and "reader of its updates" in on_updates
    assert noted.split()[3] == on_updates.split()[3]  # the same ε, of the sum and of each update


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"aggregation.secure-sum.limit": 2.0}, "the clipping norm and 8 standard deviations"),
        ({"plan.bits_per_weight": 16.0}, "at least 1000 steps"),
    ],
)
def test_noise_that_fixed_point_would_cut_or_blur_is_refused(changes, sentence):
    scenario = secure_scenario().with_values({**PRIVATE, **changes})
    with pytest.raises(InvalidValue, match=sentence):
        list(ap.run(scenario, dataset=blobs()))


def test_noise_of_sums_needs_sums_that_hide():
    with pytest.raises(InvalidValue, match="noise_of must be update unless"):
        Experiment.of(tiny_scenario(privacy__noise_of="sum"), dataset=blobs())


def test_keys_of_a_run_differ_between_rounds_and_edges():
    rounds, experiment = timed_rounds(secure_scenario())
    at, planned = experiment.place(experiment.initial_state()), rounds[0].planned
    places = [replace(at, global_round=global_round, step=step) for global_round in range(2) for step in range(2)]
    cohorts = [cohort_of(experiment, place, planned, edge) for place in places for edge in (0, 1)]
    assert len({group.secret for group in cohorts}) == len(cohorts) == 8
    assert cohorts[0].devices == tuple(range(10)) and cohorts[0].threshold == 6

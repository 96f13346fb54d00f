"""Secure sums with members and edges that lie: who is named, what is refused, and what nobody learns."""

from __future__ import annotations

import logging
import random
import time
from functools import partial

import numpy as np
import pytest

from airprune.deployment.digests import digest_of
from airprune.deployment.identity import Node, load_node, make_federation
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.secure.device_sums import DeviceSums, check_hides
from airprune.deployment.secure.exchange import EdgeExchange, named
from airprune.deployment.secure.opening import Opening, terms_of
from airprune.deployment.secure.signing import Vouchers, public_key_of, signed_keys
from airprune.deployment.training import Trainer
from airprune.errors import UsageError, WorkFailed
from airprune.methods.secure.exchange import Member, Sizes, all_keys, survivor_bits
from airprune.rounds.messages import Broadcast, Upload
from airprune.rounds.wire import broadcast_to_bytes
from support.federation import rows_of
from support.hostile import LyingSums
from support.lab import Federation
from support.secure import ONE_ROUND, SETTINGS, replayed, scenario_of
from support.tiny import final_bytes

Step = pb.SecureStep

# Members. Nine devices, of which five open a sum; at most three lie.

LIES = {
    "keys": ("short keys", "unsigned keys", "forced keys"),
    "shares": ("short shares", "unknown step", "flood"),
    "answers": ("short reveal", "false reveal", "two answers"),
    "others": ("false trouble", "false reveal", "misplaced keys"),
    "shares that nobody can open": ("false shares",),
}


@pytest.mark.parametrize("lies", LIES.values(), ids=LIES)
def test_members_that_lie_about_keys_and_shares_are_named_and_the_sum_of_the_others_is_opened(tmp_path, caplog, lies):
    """Only shares that nobody can open cost the others the round; most of them name the sender."""
    caplog.set_level(logging.INFO, "airprune")
    changes = ("network.devices_per_edge=9", "data.train_samples=270", *ONE_ROUND)
    lab = Federation(tmp_path, first_port=9_430, num_edges=1, devices_per_edge=9)
    liars = dict(zip(("d2", "d5", "d7"), lies, strict=False))
    try:
        lab.start("e0")
        for name in lab.devices:
            lab.start(name, kind=partial(LyingSums, lie=liars[name]) if name in liars else None)
        with lab.running(scenario_of(*changes), SETTINGS):
            records = list(lab.records)
    finally:
        lab.close()
    fates = {row["name"]: row["fate"] for row in rows_of(lab.out / "measured.jsonl")}
    is_lost = "false shares" in lies
    assert {fates[name] for name in lab.devices if name not in liars} == {"failed" if is_lost else "ok"}
    for name, lie in liars.items():
        was_named = f"Keys and shares of {name} refused:" in caplog.text
        assert was_named == (lie not in ("flood", "false trouble")), (lie, caplog.text)
    for name in lab.devices:
        assert name in liars or f"of {name} refused" not in caplog.text
    assert (records[0]["coverage"][0]["num_uncovered"] > 0) == is_lost
    messages = [record.getMessage() for record in caplog.records if record.name == "airprune"]
    assert all(message.replace("\n", "").isprintable() for message in messages)
    assert "Traceback" not in caplog.text
    assert final_bytes(lab.out) == replayed(lab.out, *changes)


def test_a_member_that_is_silent_in_a_step_costs_the_limit_of_that_step_and_its_own_update(tmp_path):
    changes = (*ONE_ROUND, "plan.deadline_s=4", "network.devices_per_edge=7", "data.train_samples=210")
    lab = Federation(tmp_path, first_port=9_430, num_edges=1, devices_per_edge=7)
    try:
        lab.start("e0", "d0", "d1", "d2", "d3")
        for name, lie in (("d4", "no reveal"), ("d5", "no shares"), ("d6", "no keys")):
            lab.start(name, kind=partial(LyingSums, lie=lie))
        start_s = time.monotonic()
        with lab.running(scenario_of(*changes), SETTINGS, grace_s=4.0):
            list(lab.records)
        took_s = time.monotonic() - start_s
    finally:
        lab.close()
    rows = {row["name"]: row for row in rows_of(lab.out / "measured.jsonl")}
    assert [rows[name]["fate"] for name in lab.devices] == ["ok"] * 5 + ["dropped"] * 2
    assert rows["d5"]["reason"] == "It had sent no shares in time."
    assert rows["d6"]["reason"] == "It had sent no keys in time."
    assert 3 * 8.0 <= took_s < 90.0, "three steps wait for their limit, 8 s each"
    assert final_bytes(lab.out) == replayed(lab.out, *changes)


def test_a_device_whose_shares_do_not_give_back_its_secret_is_named_unless_all_answers_were_needed():
    """Six devices, four open the sum; device 12 has dealt shares of nothing."""
    rng = random.Random(3)
    members = [Member(n, 4, rng.randbytes) for n in range(6)]
    keys = {n: member.keys() + bytes(64) for n, member in enumerate(members)}
    shares = [member.share(keys) for member in members]
    for n, member in enumerate(members):
        member.receive(keys, {m: own[n] for m, own in enumerate(shares) if m != n})
    for survivors, is_named in (([0, 1, 2, 3, 4, 5], True), ([0, 1, 2, 3], False)):
        answers = {}
        for n in survivors:
            members[n]._named = None  # each list is a round of its own
            answer = members[n].reveal(survivor_bits(survivors, 6), 6)
            answers[n] = answer[: 2 * 33] + rng.randbytes(33) + answer[3 * 33 :]
        opening = Opening(threshold=4, keys=keys, survivors=survivors, answers=answers)
        assert opening.secrets.lost == (2,)
        assert list(named(opening, [10, 11, 12, 13, 14, 15])) == ([12] if is_named else [])


def test_one_device_cannot_have_an_honest_one_named_by_what_it_reveals_or_says(nodes):
    """A false share of one device names nobody; one accusation neither."""
    sums = Sums(nodes)
    sums.agree()
    answers = {n: sums.reveal(n, [0, 1, 2, 3, 4]) for n in range(5)}
    answers[4] = bytes(33) + answers[4][33:]
    opening = Opening(threshold=3, keys=sums.edge.said[Step.KEYS], survivors=range(5), answers=answers)
    assert opening.secrets.false == {4: (0,)} and not opening.secrets.lost
    assert named(opening, range(5)) == {}
    accusing = Step(session=sums.edge.session, step=Step.OPEN, trouble="x", accused=0)
    assert [sums.edge.take(n, accusing, b"", None) is not None for n in (1, 2, 3)] == [False, False, True]


# An edge that cheats: what devices answer.


@pytest.fixture
def nodes(tmp_path) -> dict[str, Node]:
    kits = make_federation(tmp_path / "kits", num_edges=1, devices_per_edge=5, first_port=9_430)
    return {kit.name: load_node(kit) for kit in kits}


class Sums:
    """Five devices and what an edge says to them."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        facts = {"input_shape": (1, 28, 28), "num_classes": 10, "num_devices": 5, "num_edges": 1}
        self.work, self.nodes = RunDefinition(scenario=scenario_of(), **facts), nodes
        own = [nodes[f"d{n}"] for n in range(5)]
        self.devices = [DeviceSums(lambda node=node: node, self.work, Vouchers(node)) for node in own]
        self.certificates = {n: node.certificate for n, node in enumerate(own)}
        self.edge = EdgeExchange(RoundKey("r", 0, 0), self.work.cohort(range(5)))

    def begin_again(self) -> None:
        self.edge = EdgeExchange(self.edge.key, self.edge.cohort)
        self.agree()

    def keys(self) -> dict[int, bytes]:
        return {n: self.devices[n].answer(self.edge.request(Step.KEYS, n), b"")[1] for n in range(5)}

    def shares(self, device: int, keys: dict[int, bytes], certificates: dict[int, bytes] | None = None) -> bytes:
        shown, request = self.edge.request(Step.CERTIFICATES, device), self.edge.request(Step.SHARES, device)
        for n, pem in (certificates or self.certificates).items():
            shown.certificates[n], request.certificates[n] = pem, digest_of(pem)
        self.devices[device].answer(shown, b"")
        return self.devices[device].answer(request, all_keys(keys))[1]

    def agree(self, *, hides: bool = True) -> None:
        """All five agree on masks and hide an update."""
        for n, own in self.keys().items():
            said = Step(session=self.edge.session, step=Step.KEYS)
            self.edge.take(n, said, own, public_key_of(self.certificates[n]))
        self.edge.step = Step.SHARES
        for n in range(5):
            self.edge.said[Step.SHARES][n] = self.shares(n, self.edge.said[Step.KEYS])
        self.edge.step = Step.REVEAL
        for n in range(5):
            self.devices[n].answer(self.edge.request(Step.OPEN, n), self.edge.shares_for(n))
            if hides:
                self.hide(n)

    def hide(self, device: int, entry: float = 0.01, start: float = 0.0, learning_rate: float = 0.1) -> np.ndarray:
        """Words of an update of equal entries."""
        size = self.work.shape.num_state
        received = Broadcast(model=np.full(size, start, dtype=np.float32))
        trained = received.model + np.float32(entry)
        upload = Upload(trained, None, 0.0, None, 0.0, {}, {}, 0.0, 1, 0.0, 0.0, 0.0, 0.0)
        digest = digest_of(broadcast_to_bytes(received)).hex()
        orders = pb.Orders(session=self.edge.session, model_digest=digest, learning_rate=learning_rate)
        return self.devices[device].masked(upload, received, orders).state

    def opened(self, words: list[np.ndarray]) -> np.ndarray:
        """What the edge reads, having sent all devices the model and the learning rate that it is to send."""
        for n in range(5):
            self.edge.said[Step.REVEAL][n] = self.reveal(n, [0, 1, 2, 3, 4])
        received = Broadcast(model=np.zeros(self.work.shape.num_state, dtype=np.float32))
        terms = terms_of(self.work, 0, 0.1, digest_of(broadcast_to_bytes(received)).hex())
        cohort = self.edge.opening(range(5)).cohort(self.edge.cohort, self.work.codec, None, terms)
        return cohort.opened(np.sum(words, axis=0, dtype=np.uint32), range(5)) * cohort.fixed.step

    def reveal(self, device: int, survivors: list[int]) -> bytes:
        return self.devices[device].answer(self.edge.request(Step.REVEAL, device), self.edge.survivors(survivors))[1]


def test_an_edge_cannot_put_its_own_keys_in_the_place_of_a_devices(nodes):
    sums = Sums(nodes)
    keys, certificates = sums.keys(), sums.certificates
    own = Member(1, 3, random.Random(1).randbytes).keys()
    forged = signed_keys(nodes["e0"], sums.edge.key, sums.edge.session, 1, 5, own)
    with pytest.raises(WorkFailed, match="must be signed for it by the certificate of their device"):
        sums.shares(0, {**keys, 1: forged})
    with pytest.raises(WorkFailed, match="must come with a device's certificate of this federation"):
        sums.shares(2, {**keys, 1: forged}, {**certificates, 1: nodes["e0"].certificate})
    twice = signed_keys(nodes["d4"], sums.edge.key, sums.edge.session, 1, 5, own)
    with pytest.raises(WorkFailed, match="must be of different devices"):
        sums.shares(3, {**keys, 1: twice}, {**certificates, 1: certificates[4]})


def test_keys_of_another_exchange_are_refused(nodes):
    first, second = Sums(nodes), Sums(nodes)
    old, new = first.keys(), second.keys()
    with pytest.raises(WorkFailed, match="must be signed for it"):
        second.shares(0, {**new, 1: old[1]})


def test_certificates_of_another_federation_are_refused(nodes, tmp_path):
    others = make_federation(tmp_path / "other", num_edges=1, devices_per_edge=5, first_port=9_430)
    stranger = load_node(next(kit for kit in others if kit.name == "d1"))
    sums = Sums(nodes)
    keys = {**sums.keys(), 1: signed_keys(stranger, sums.edge.key, sums.edge.session, 1, 5, bytes(96))}
    with pytest.raises(WorkFailed, match="certificate of this federation"):
        sums.shares(0, keys, {**sums.certificates, 1: stranger.certificate})


def test_a_device_helps_to_open_one_sum_of_enough_devices_and_hides_one_update(nodes):
    sums = Sums(nodes)
    sums.agree()
    with pytest.raises(WorkFailed, match="needs 3 devices, and the edge has named 2"):
        sums.reveal(1, [0, 1])
    assert len(sums.reveal(0, [0, 1, 2])) == Sizes(5).revealed
    with pytest.raises(WorkFailed, match="has sent something else in this step before"):
        sums.reveal(0, [0, 1, 3])
    with pytest.raises(WorkFailed, match="they serve once"):
        sums.hide(0, entry=0.02)


def test_an_edge_that_sends_devices_unequal_models_or_rates_reads_nothing(nodes):
    """To have all but one send an update of nothing: the sum would be that one's. Honest sums are read to a step."""
    honest = Sums(nodes)
    honest.agree(hides=False)
    total = honest.opened([honest.hide(n, entry=0.01 * n) for n in range(5)])
    assert np.abs(total - 0.1).max() < 1e-6
    for other in ({"start": 1.0}, {"learning_rate": 0.0}):
        sums = Sums(nodes)
        sums.agree(hides=False)
        words = [sums.hide(n, **({"entry": 0.3} if n == 2 else {"entry": 0.0, **other})) for n in range(5)]
        found = sums.opened(words)
        assert np.abs(found - 0.3).min() > 0.0 and found.std() > 0.5, "uniform in the range of all sums"


def test_a_device_compares_the_model_of_its_orders_with_the_one_that_came(nodes):
    sums = Sums(nodes)
    sums.agree(hides=False)
    received = Broadcast(model=np.zeros(sums.work.shape.num_state, dtype=np.float32))
    with pytest.raises(WorkFailed, match="must be the one that came with them"):
        upload = Upload(received.model, None, 0.0, None, 0.0, {}, {}, 0.0, 1, 0.0, 0.0, 0.0, 0.0)
        sums.devices[0].masked(upload, received, pb.Orders(session=sums.edge.session, model_digest="0" * 32))


def test_of_one_round_a_device_opens_no_second_sum_in_another_exchange(nodes):
    """Two sums of one round that differ by a device would lay its update open; the same sum again says nothing new."""
    sums = Sums(nodes)
    sums.agree()
    sums.reveal(0, [0, 1, 2, 3])
    sums.begin_again()
    with pytest.raises(WorkFailed, match="Another sum of edge round 0 of global round 0 was opened before"):
        sums.reveal(0, [0, 1, 2])
    sums.begin_again()
    assert sums.reveal(0, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (("method=hierfavg",), "aggregation.edge must be secure-sum, got 'data-weighted'"),
        (("aggregation.secure-sum.threshold=0.2",), "more than half of the devices must open a sum, got 2 of 5"),
    ],
)
def test_a_device_may_insist_on_hidden_updates_whatever_scenario_its_edge_passes_on(changes, sentence):
    facts = {"input_shape": (1, 28, 28), "num_classes": 10, "num_devices": 5, "num_edges": 1}
    check_hides(RunDefinition(scenario=scenario_of(), **facts))
    with pytest.raises(UsageError, match=sentence):
        check_hides(RunDefinition(scenario=scenario_of(*changes), **facts))


def test_without_an_exchange_there_is_no_update(nodes):
    sums = Sums(nodes)
    with pytest.raises(WorkFailed, match="keys of this secure sum are gone"):
        sums.hide(0)
    samples = np.zeros((4, 1, 28, 28), dtype=np.float32), np.zeros(4, dtype=np.int64)
    received = Broadcast(model=np.zeros(sums.work.shape.num_state, dtype=np.float32))
    with pytest.raises(WorkFailed, match="has no secure sums"):
        Trainer(sums.work, 0, samples).upload(pb.Orders(), received, {})

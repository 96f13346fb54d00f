"""Random schedules of late, duplicate, reordered, lost and bad messages, leaves, joins and restarts of the edge.

The oracle reads the whole list of a round's messages with hindsight: it tries every time at which the round could have
closed, and says everybody's fate by looking for the message that decided it.
"""

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from airprune.deployment.round_machine import (
    Arrived,
    Close,
    EdgeRound,
    Failed,
    Joined,
    Left,
    Opened,
    OutcomeKind,
    RoundKey,
    SendOrders,
    SendReceipt,
    Tick,
    Verdict,
    step,
)

POOL = range(6)
KEYS = [RoundKey("run", q, e) for q in range(2) for e in range(3)]
OTHER_RUN = RoundKey("other", 0, 1)


@dataclass(frozen=True)
class Life:
    """One life of an edge round: until the next one is opened, or the edge dies and the same one is opened again."""

    start: EdgeRound
    open_s: float
    messages: list  # (delivered_s, event), in that order
    ends_s: float


def random_life(rng, key, counted, begin_s, *, is_prompt=False):
    selected = tuple(rng.sample(POOL, rng.randint(0, 5)))
    start = EdgeRound(
        key=key,
        model_digest="model",
        selected=selected,
        deadline_s=rng.uniform(1, 4),
        grace_s=rng.choice([0.0, 0.3]),
        rejoin_s=rng.choice([0.0, 0.4, 9.0]),
        counted=counted,
        online=frozenset(device for device in POOL if rng.random() < 0.8),
    )
    open_s = begin_s + 0.3
    ends_s = open_s + rng.uniform(0.5, 7)  # often before the round has closed: then the edge died
    messages = []
    for _ in range(rng.randint(0, 40)):
        at_s = rng.uniform(begin_s, ends_s)
        event = random_event(rng, key, at_s)
        is_slow = isinstance(event, Arrived) and not is_prompt and rng.random() < 0.4
        messages.append((at_s + (rng.uniform(0, 0.5) if is_slow else 0), event))
    return Life(start, open_s, sorted(messages, key=lambda message: message[0]), ends_s)


def random_event(rng, key, at_s):
    device = rng.choice(POOL)
    of = key if rng.random() < 0.7 else rng.choice([*KEYS, OTHER_RUN])
    match rng.choices(["upload", "join", "leave", "fail"], [12, 3, 3, 1])[0]:
        case "join":
            return Joined(device, at_s)
        case "leave":
            return Left(device, at_s, "cut")
        case "fail":
            return Failed(device, of, "out of memory", at_s)
    kind = rng.choices(["good", "other", "bad", "wrong model"], [12, 1, 1, 1])[0]
    return Arrived(
        device=device,
        key=of,
        model_digest="another" if kind == "wrong model" else "model",
        digest=f"{device}, {of}, {kind}",
        at_s=at_s,
        compute_s=0.1,
        uplink_s=0.1,
        num_bytes=100,
        trouble="It is cut short." if kind == "bad" else "",
    )


def play(life, *, is_punctual=True):
    """The state at the end, the receipts by place of the upload, the orders, and the closes with their times."""
    state, receipts, orders, closes = life.start, {}, [], []

    def feed(event, now_s, place=None):
        nonlocal state
        state, actions = step(state, event)
        for action in actions:
            match action:
                case SendReceipt():
                    assert (action.device, action.key) == (event.device, event.key)
                    assert place not in receipts
                    receipts[place] = action.verdict
                case SendOrders():
                    orders.append((now_s, action))
                case Close():
                    closes.append((now_s, action))

    def tick(until_s, now_s=0.0):
        """As a caller with a timer: never before the time, at once if that has gone by."""
        while is_punctual and state.next_tick_s is not None and state.next_tick_s <= until_s:
            feed(Tick(max(now_s, state.next_tick_s)), max(now_s, state.next_tick_s))

    is_open = False
    for place, (delivered_s, event) in [*enumerate(life.messages), (None, (life.ends_s, Tick(life.ends_s)))]:
        if not is_open and delivered_s >= life.open_s:
            feed(Opened(life.open_s), life.open_s)
            is_open = True
        tick(delivered_s)
        feed(event, delivered_s, place)
        tick(delivered_s, delivered_s)
    return state, receipts, orders, closes


class Hindsight:
    """Applies the rules to a whole life."""

    def __init__(self, life):
        self.life, self.round = life, life.start
        self.deadline = life.open_s + self.round.deadline_s
        self.end = self.deadline + self.round.grace_s
        last_s = max([life.ends_s, *(delivered_s for delivered_s, _ in life.messages)])
        turns = [delivered_s for delivered_s, _ in life.messages]
        waits = [turn + self.round.rejoin_s for turn in [life.open_s, *turns]]
        times = sorted(t for t in {life.open_s, *turns, *waits, self.end} if life.open_s <= t <= last_s)
        self.closed_s = next((t for t in times if self.may_close(t)), None)
        self.deciding = {device: self.first_word(device, self.closed_s or last_s) for device in self.round.selected}

    def first_word(self, device, until_s):
        """Place of the device's first message about this round."""
        for place, (delivered_s, event) in enumerate(self.life.messages):
            is_word = isinstance(event, Arrived | Failed) and event.device == device and event.key == self.round.key
            if is_word and delivered_s <= until_s:
                return place
        return None

    def away_since(self, device, at_s):
        """None if it was online then, or at the deadline if that was before."""
        since = None if device in self.round.online else self.life.open_s
        for _, event in self.life.messages:
            if isinstance(event, Joined | Left) and event.device == device and event.at_s <= min(at_s, self.deadline):
                if isinstance(event, Joined):
                    since = None
                elif since is None:
                    since = max(event.at_s, self.life.open_s)
        return since

    def may_close(self, at_s):
        silent = [device for device in self.round.selected if self.first_word(device, at_s) is None]
        away = [self.away_since(device, at_s) for device in silent]
        return at_s >= self.end or all(t is not None and t + self.round.rejoin_s <= at_s for t in away)

    def content(self, upload):
        if upload.at_s > self.deadline:
            return Verdict.LATE
        return Verdict.REFUSED if upload.trouble or upload.model_digest != "model" else Verdict.COUNTED

    def fate(self, device):
        place = self.deciding[device]
        if place is None:
            return OutcomeKind.LATE if self.away_since(device, self.closed_s) is None else OutcomeKind.DROPPED
        event = self.life.messages[place][1]
        if isinstance(event, Failed):
            return OutcomeKind.FAILED
        return {Verdict.COUNTED: OutcomeKind.OK, Verdict.LATE: OutcomeKind.LATE, Verdict.REFUSED: OutcomeKind.REFUSED}[
            self.content(event)
        ]

    def verdict(self, place):
        upload = self.life.messages[place][1]
        here, there = (
            (self.round.key.global_round, self.round.key.edge_round),
            (upload.key.global_round, upload.key.edge_round),
        )
        if upload.key.run != "run" or there > here:
            return Verdict.REFUSED
        if there < here:
            has_counted = self.round.counted.get(upload.key, {}).get(upload.device) == upload.digest
            return Verdict.DUPLICATE if has_counted else Verdict.LATE
        if upload.device not in self.round.selected:
            return Verdict.REFUSED
        decided_by = self.deciding[upload.device]
        if decided_by is None:
            return Verdict.LATE
        first = self.life.messages[decided_by][1]
        if decided_by == place or isinstance(first, Failed):
            return self.content(upload) if decided_by == place else Verdict.REFUSED
        if self.content(first) is Verdict.COUNTED and first.digest == upload.digest:
            return Verdict.DUPLICATE
        return Verdict.LATE if self.content(first) is Verdict.LATE else Verdict.REFUSED

    def orders(self):
        """(when, to whom), for all who are waited for and there."""
        joins = [(t, e.device) for t, e in self.life.messages if isinstance(e, Joined) and t > self.life.open_s]
        present = [(self.life.open_s, d) for d in self.round.selected if self.away_since(d, self.life.open_s) is None]
        ends_s = min(self.deadline, self.closed_s or self.deadline)
        return [
            (at_s, device)
            for at_s, device in present + joins
            if device in self.round.selected and at_s <= ends_s and self.first_word(device, at_s) is None
        ]


def check_life(life):
    """The machine against hindsight; what has counted by its end, None if it did not close."""
    state, receipts, orders, closes = play(life)
    truth = Hindsight(life)

    uploads = {place: event for place, (_, event) in enumerate(life.messages) if isinstance(event, Arrived)}
    assert receipts == {place: truth.verdict(place) for place in uploads}
    assert [(at_s, action.device) for at_s, action in orders] == truth.orders()
    assert all(action.time_left_s == pytest.approx(truth.deadline - at_s) for at_s, action in orders)
    if truth.closed_s is None:
        assert not closes
        return None
    ((closed_s, close),) = closes
    assert closed_s == pytest.approx(truth.closed_s, abs=1e-9)  # sums of the same times in another order
    assert closed_s <= truth.end + 1e-9
    assert [(o.device, o.fate) for o in close.outcomes] == [(d, truth.fate(d)) for d in life.start.selected]

    counted = Counter(uploads[place].device for place, verdict in receipts.items() if verdict is Verdict.COUNTED)
    assert counted == Counter(o.device for o in close.outcomes if o.fate is OutcomeKind.OK), (
        "receipts agree with the average"
    )
    return state


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 10))])
def test_a_hundred_random_schedules_go_as_hindsight_says(block):
    lives = closed = 0
    for seed in range(100 * block, 100 * (block + 1)):
        rng = random.Random(seed)
        counted, now_s, keys = {}, rng.uniform(0, 1000), iter(KEYS)
        key = next(keys)
        for _ in range(4):
            life = random_life(rng, key, counted, now_s)
            state = check_life(life)
            now_s, lives = life.ends_s, lives + 1
            if state is not None:  # saved with the average; of a round that did not close nothing is left
                counted, key, closed = state.counted_so_far, next(keys), closed + 1
    assert lives == 400 and 100 < closed < 390


def test_fates_do_not_depend_on_how_punctual_the_ticks_are():
    for seed in range(200):
        life = random_life(random.Random(seed), KEYS[2], {}, 50.0, is_prompt=True)
        punctual, tardy = (play(life, is_punctual=choice) for choice in (True, False))
        assert punctual[1:3] == tardy[1:3]
        assert [close.outcomes for _, close in punctual[3]] == [close.outcomes for _, close in tardy[3]]


def test_the_same_uploads_count_in_whatever_order_the_devices_come():
    for seed in range(50):
        rng = random.Random(seed)
        start = EdgeRound(
            key=KEYS[2], model_digest="model", selected=tuple(POOL), deadline_s=10.0, online=frozenset(POOL)
        )
        words = [random_event(rng, KEYS[2], rng.uniform(1, 9)) for _ in range(40)]
        words = [event for event in words if isinstance(event, Arrived)]
        ends = set()
        for _ in range(5):  # each device's own messages keep their order: its first one wins
            queues = {device: [event for event in words if event.device == device] for device in POOL}
            turns = rng.sample([event.device for event in words], len(words))
            state, _ = step(start, Opened(0.0))
            for device in turns:
                state, _ = step(state, queues[device].pop(0))
            state, _ = step(state, Tick(10.0))
            ends.add(frozenset((o.device, o.fate, o.digest) for o in state.outcomes.values()))
        assert len(ends) == 1

"""An edge round as a pure state machine: events in, actions out; no I/O, no clock.

`step` takes a round and an event to the next round and what is to be done now. Events carry `at_s`, seconds since any
origin of the edge's own clock. The caller feeds `Tick` at `next_tick_s`, does the actions, and goes on feeding after
`Close`: an upload after it is still answered.

- The deadline counts from `Opened`. An upload counts if its last byte came by then; one under way has missed it.
- An upload is known by (run, global round, edge round, device). The first one of a device decides its outcome; the very
  same one again is a duplicate, which always means that it has counted; another one is refused.
- A device that comes back before the deadline gets its orders again, with the time that is left.
- The round closes once: when all are decided; when those who are not have all been away for `rejoin_s`; at the latest
  `grace_s` after the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Protocol

# Rounds in which a duplicate is recognised; a device sends only its last few uploads again.
_REMEMBERED_ROUNDS = 64


class _OfARound(Protocol):
    run: str
    global_round: int
    edge_round: int


@dataclass(frozen=True, order=True)
class RoundKey:
    """Names an edge round of a run; both rounds count from 0."""

    run: str
    global_round: int
    edge_round: int

    @classmethod
    def of(cls, message: _OfARound) -> RoundKey:
        """Returns the round that a message belongs to."""
        return cls(message.run, message.global_round, message.edge_round)

    def __str__(self) -> str:
        return f"edge round {self.edge_round} of global round {self.global_round}"


class OutcomeKind(StrEnum):
    """The outcome of a selected device."""

    OK = "ok"
    LATE = "late"
    DROPPED = "dropped"
    FAILED = "failed"
    REFUSED = "refused"


class Verdict(StrEnum):
    """The verdict on an upload."""

    COUNTED = "counted"
    LATE = "late"
    DUPLICATE = "duplicate"
    """This very upload has counted already."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Opened:
    at_s: float


@dataclass(frozen=True)
class Joined:
    """A device is online, for the first time or again."""

    device: int
    at_s: float


@dataclass(frozen=True)
class Left:
    """A device has lost its connection; not sent for an old one that a new one has replaced."""

    device: int
    at_s: float
    why: str


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """A whole upload was received.

    Attributes:
      model_digest: of the model that it says it started from.
      digest: of the upload itself.
      at_s: when its last byte came, however long it took to check it.
      compute_s: as the device measured it.
      uplink_s: as the edge measured it.
      trouble: why its contents are no good; empty if they are.
    """

    device: int
    key: RoundKey
    model_digest: str
    digest: str
    at_s: float
    compute_s: float
    uplink_s: float
    num_bytes: int
    trouble: str = ""


@dataclass(frozen=True)
class Failed:
    """A device says that it could not train."""

    device: int
    key: RoundKey
    trouble: str
    at_s: float


@dataclass(frozen=True)
class Tick:
    at_s: float


Event = Opened | Joined | Left | Arrived | Failed | Tick


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one selected device; the numbers are 0 if no upload of the round came before it closed.

    Attributes:
      arrived_s: since the orders were sent.
    """

    device: int
    fate: OutcomeKind
    reason: str = ""
    arrived_s: float = 0.0
    compute_s: float = 0.0
    uplink_s: float = 0.0
    num_bytes: int = 0
    digest: str = ""


@dataclass(frozen=True)
class SendOrders:
    device: int
    time_left_s: float


@dataclass(frozen=True)
class SendReceipt:
    device: int
    key: RoundKey
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Close:
    """The round is over.

    Attributes:
      outcomes: of all selected devices, in their order.
      took_s: since the orders were sent.
    """

    outcomes: tuple[Outcome, ...]
    took_s: float


Action = SendOrders | SendReceipt | Close


@dataclass(frozen=True, kw_only=True)
class EdgeRound:
    """One edge round: what it was made with, then what has happened.

    Attributes:
      model_digest: of the model that the devices are sent.
      selected: the devices, in the order of the outcomes.
      grace_s: how long after the deadline an upload that came in time may still be under check.
      rejoin_s: patience with devices that have left, if no other device is waited for. The default lets a device dial
        again after a cut connection, but does not wait for a process to start anew.
      counted: digests of what counted in earlier rounds, by round and device; see `counted_so_far`.
      online: before the deadline, those who are; after it, those who were at that time.
      left: the last leave of each device that has left, whether it came back or not.
    """

    key: RoundKey
    model_digest: str
    selected: tuple[int, ...]
    deadline_s: float
    grace_s: float = 0.0
    rejoin_s: float = 0.5
    counted: Mapping[RoundKey, Mapping[int, str]] = field(default_factory=dict)
    online: frozenset[int] = frozenset()
    left: Mapping[int, Left] = field(default_factory=dict)
    opened_s: float | None = None
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)
    is_closed: bool = False

    @property
    def waited_for(self) -> tuple[int, ...]:
        return tuple(device for device in self.selected if device not in self.outcomes)

    @property
    def next_tick_s(self) -> float | None:
        """Time at which the round closes if nothing happens before; None if it is not open."""
        if self.opened_s is None or self.is_closed:
            return None
        end_s = self.opened_s + self.deadline_s + self.grace_s
        if self.online.intersection(self.waited_for):
            return end_s
        patience_s = [self._away_since_s(device, self.opened_s) + self.rejoin_s for device in self.waited_for]
        return min(end_s, max(patience_s, default=-inf))

    @property
    def counted_so_far(self) -> dict[RoundKey, dict[int, str]]:
        """Value of `counted` for the next round, which an edge saves with its model."""
        own = {device: outcome.digest for device, outcome in self.outcomes.items() if outcome.fate is OutcomeKind.OK}
        last = sorted({**self.counted, self.key: own}.items())[-_REMEMBERED_ROUNDS:]
        return {key: dict(digests) for key, digests in last}

    def elapsed_s(self, at_s: float) -> float:
        """Returns the time since the orders were sent; 0 before."""
        return 0.0 if self.opened_s is None else at_s - self.opened_s

    def time_left_s(self, at_s: float) -> float:
        return self.deadline_s - self.elapsed_s(at_s)

    def _away_since_s(self, device: int, opened_s: float) -> float:
        return max(opened_s, self.left[device].at_s) if device in self.left else opened_s


def step(round_: EdgeRound, event: Event) -> tuple[EdgeRound, tuple[Action, ...]]:
    """Returns the round after the event, and the actions to take, in order.

    What was due before the event happens first, so that outcomes do not depend on how punctual the ticks are.
    """
    before: tuple[Action, ...] = ()
    after: tuple[Action, ...] = ()
    if round_.next_tick_s is not None and round_.next_tick_s < event.at_s:
        round_, before = _close(round_, event.at_s)
    round_, actions = _handle(round_, event)
    if round_.next_tick_s is not None and round_.next_tick_s <= event.at_s:
        round_, after = _close(round_, event.at_s)
    return round_, (*before, *actions, *after)


def _handle(round_: EdgeRound, event: Event) -> tuple[EdgeRound, tuple[Action, ...]]:
    match event:
        case Opened(at_s) if round_.opened_s is None:
            round_ = replace(round_, opened_s=at_s)
            present = (device for device in round_.waited_for if device in round_.online)
            return round_, tuple(SendOrders(device, round_.deadline_s) for device in present)
        case Joined(device, at_s) if round_.time_left_s(at_s) > 0:
            is_due = round_.opened_s is not None and not round_.is_closed and device in round_.waited_for
            orders = (SendOrders(device, round_.time_left_s(at_s)),) if is_due else ()
            return replace(round_, online=round_.online | {device}), orders
        case Left(device, at_s) if device in round_.online and round_.time_left_s(at_s) > 0:
            return replace(round_, online=round_.online - {device}, left={**round_.left, device: event}), ()
        case Arrived(device=device, key=key):
            outcome, verdict, reason = _judge(round_, event)
            return _decide(round_, outcome), (SendReceipt(device, key, verdict, reason),)
        case Failed(device, key, trouble) if key == round_.key:
            return _decide(round_, Outcome(device=device, fate=OutcomeKind.FAILED, reason=trouble)), ()
    return round_, ()


def _judge(round_: EdgeRound, upload: Arrived) -> tuple[Outcome | None, Verdict, str]:
    """Returns the device's outcome if this upload decides it, and the receipt's verdict and reason."""
    device, key = upload.device, upload.key
    if key.run != round_.key.run:
        return None, Verdict.REFUSED, f"It is of run {key.run!r}, and this is {round_.key.run!r}."
    if key > round_.key:
        return None, Verdict.REFUSED, f"It is of {key}, and this is {round_.key}."
    if key < round_.key:
        if round_.counted.get(key, {}).get(device) == upload.digest:
            return None, Verdict.DUPLICATE, ""
        return None, Verdict.LATE, f"It is of {key}, and this is {round_.key}."
    if device not in round_.selected:
        return None, Verdict.REFUSED, f"Device {device} was not selected in {key}."
    if device in round_.outcomes:
        return None, *_judge_again(round_.outcomes[device], upload)
    if round_.time_left_s(upload.at_s) < 0:
        fate, verdict = OutcomeKind.LATE, Verdict.LATE
        reason = f"It came {-round_.time_left_s(upload.at_s):.3g} s after the deadline of {round_.deadline_s:g} s."
    elif upload.model_digest != round_.model_digest:
        fate, verdict = OutcomeKind.REFUSED, Verdict.REFUSED
        reason = f"It starts from model {upload.model_digest!r}, and {round_.model_digest!r} was sent."
    elif upload.trouble:
        fate, verdict, reason = OutcomeKind.REFUSED, Verdict.REFUSED, upload.trouble
    else:
        fate, verdict, reason = OutcomeKind.OK, Verdict.COUNTED, ""
    outcome = Outcome(
        device=device,
        fate=fate,
        reason=reason,
        arrived_s=round_.elapsed_s(upload.at_s),
        compute_s=upload.compute_s,
        uplink_s=upload.uplink_s,
        num_bytes=upload.num_bytes,
        digest=upload.digest,
    )
    return outcome, verdict, reason


def _judge_again(decided: Outcome, upload: Arrived) -> tuple[Verdict, str]:
    """Returns the verdict on an upload whose device has its outcome already."""
    is_same = upload.digest == decided.digest
    match decided.fate:
        case OutcomeKind.OK if is_same:
            return Verdict.DUPLICATE, ""
        case OutcomeKind.LATE | OutcomeKind.DROPPED:
            return Verdict.LATE, decided.reason
        case OutcomeKind.REFUSED if is_same:
            return Verdict.REFUSED, decided.reason
        case OutcomeKind.FAILED:
            return Verdict.REFUSED, "The device has said that its training failed."
    return Verdict.REFUSED, "Another upload of the device came first in this round."


def _decide(round_: EdgeRound, outcome: Outcome | None) -> EdgeRound:
    """Records an outcome, unless the device has one already."""
    if outcome is None or outcome.device not in round_.waited_for:
        return round_
    return replace(round_, outcomes={**round_.outcomes, outcome.device: outcome})


def with_discounted(
    round_: EdgeRound, close: Close, fate: OutcomeKind, reasons: Mapping[int, str]
) -> tuple[EdgeRound, Close]:
    """Returns a closed round in which uploads that had been counted do not count, for reasons that only all show."""
    if not reasons:
        return round_, close
    changed = {device: replace(round_.outcomes[device], fate=fate, reason=reason) for device, reason in reasons.items()}
    outcomes = {**round_.outcomes, **changed}
    return replace(round_, outcomes=outcomes), replace(close, outcomes=tuple(outcomes[d] for d in round_.selected))


def _close(round_: EdgeRound, at_s: float) -> tuple[EdgeRound, tuple[Action, ...]]:
    for device in round_.waited_for:
        if device in round_.online:
            reason = f"Nothing had come by the deadline of {round_.deadline_s:g} s."
            outcome = Outcome(device=device, fate=OutcomeKind.LATE, reason=reason)
        else:
            reason = round_.left[device].why if device in round_.left else "It was not online."
            outcome = Outcome(device=device, fate=OutcomeKind.DROPPED, reason=reason)
        round_ = _decide(round_, outcome)
    outcomes = tuple(round_.outcomes[device] for device in round_.selected)
    return replace(round_, is_closed=True), (Close(outcomes, round_.elapsed_s(at_s)),)

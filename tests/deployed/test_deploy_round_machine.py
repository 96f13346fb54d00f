"""The rules of an edge round, by hand and against a brute-force reading of the whole event list."""

from dataclasses import replace

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

KEY = RoundKey("run", 3, 1)
OLDER = RoundKey("run", 2, 4)
OPEN = Opened(100.0)


def edge_round(**changes):
    made = {"key": KEY, "model_digest": "m", "selected": (7, 4), "deadline_s": 10.0, "online": frozenset({4, 7})}
    return EdgeRound(**(made | changes))


def upload(device, at_s, digest="", **changes):
    made = {"key": KEY, "model_digest": "m", "compute_s": 0.5, "uplink_s": 0.25, "num_bytes": 1000}
    return Arrived(device=device, digest=digest or f"d{device}", at_s=at_s, **(made | changes))


def play(state, *events):
    """The last state, and all actions in order."""
    actions = []
    for event in events:
        state, now = step(state, event)
        actions += now
    return state, actions


def verdicts(actions):
    return [action.verdict for action in actions if isinstance(action, SendReceipt)]


def fates(actions):
    """Returns the outcomes of the one Close there is."""
    (close,) = [action for action in actions if isinstance(action, Close)]
    return {outcome.device: outcome.fate for outcome in close.outcomes}


def test_a_round_closes_as_soon_as_all_have_arrived():
    state, actions = play(edge_round(), OPEN, upload(4, 101.0), upload(7, 102.5))
    assert actions[:2] == [SendOrders(7, 10.0), SendOrders(4, 10.0)]
    assert verdicts(actions) == [Verdict.COUNTED, Verdict.COUNTED]
    close = actions[-1]
    assert close.took_s == 2.5
    assert [(o.device, o.fate, o.arrived_s, o.num_bytes) for o in close.outcomes] == [
        (7, OutcomeKind.OK, 2.5, 1000),
        (4, OutcomeKind.OK, 1.0, 1000),
    ]
    assert state.next_tick_s is None


def test_a_round_that_asks_nobody_closes_at_once():
    assert play(edge_round(selected=()), OPEN)[1] == [Close((), 0.0)]


def test_an_upload_counts_at_the_deadline_and_one_under_way_then_is_late():
    _, actions = play(edge_round(), OPEN, upload(4, 110.0), Tick(110.0), upload(7, 110.1))
    assert fates(actions) == {7: OutcomeKind.LATE, 4: OutcomeKind.OK}
    assert verdicts(actions) == [Verdict.COUNTED, Verdict.LATE]
    assert isinstance(actions[-2], Close), "it is answered after the round has closed"


def test_an_upload_that_came_in_time_counts_though_it_was_checked_in_the_grace():
    _, actions = play(edge_round(grace_s=1.0), OPEN, Tick(110.0), upload(7, 110.5), upload(4, 109.9))
    assert fates(actions) == {7: OutcomeKind.LATE, 4: OutcomeKind.OK}
    _, actions = play(edge_round(grace_s=1.0), OPEN, Tick(111.0), upload(4, 109.9))
    assert fates(actions) == {7: OutcomeKind.LATE, 4: OutcomeKind.LATE}
    assert verdicts(actions) == [Verdict.LATE]


def test_the_same_upload_again_is_a_duplicate_and_another_is_refused():
    again = [upload(4, 101.0), upload(4, 102.0), upload(4, 103.0, "other"), Tick(110.0), upload(4, 111.0)]
    _, actions = play(edge_round(), OPEN, *again)
    assert verdicts(actions) == [Verdict.COUNTED, Verdict.DUPLICATE, Verdict.REFUSED, Verdict.DUPLICATE]
    assert fates(actions) == {7: OutcomeKind.LATE, 4: OutcomeKind.OK}


def test_an_older_upload_is_a_duplicate_if_it_counted_and_late_if_not():
    counted = {OLDER: {4: "old"}}
    older = [upload(4, 101.0, "old", key=OLDER), upload(4, 101.0, "x", key=OLDER), upload(7, 101.0, "old", key=OLDER)]
    state, actions = play(edge_round(counted=counted), OPEN, *older)
    assert verdicts(actions) == [Verdict.DUPLICATE, Verdict.LATE, Verdict.LATE]
    assert state.waited_for == (7, 4)


def test_the_next_round_knows_what_counted_in_this_one():
    state, _ = play(edge_round(counted={OLDER: {4: "old"}}), OPEN, upload(4, 101.0), Tick(110.0))
    assert state.counted_so_far == {OLDER: {4: "old"}, KEY: {4: "d4"}}
    later = edge_round(key=replace(KEY, edge_round=2), counted=state.counted_so_far)
    _, actions = play(later, OPEN, upload(4, 101.0), upload(7, 101.0), upload(4, 101.0, "old", key=OLDER))
    assert verdicts(actions) == [Verdict.DUPLICATE, Verdict.LATE, Verdict.DUPLICATE]


@pytest.mark.parametrize(
    ("stranger", "says"),
    [
        (upload(4, 101.0, key=replace(KEY, run="other")), "of run 'other'"),
        (upload(4, 101.0, key=replace(KEY, edge_round=2)), "edge round 2"),
        (upload(4, 101.0, key=RoundKey("run", 4, 0)), "global round 4"),
        (upload(5, 101.0), "was not selected"),
    ],
)
def test_an_upload_that_is_none_of_the_round_is_refused_and_decides_nothing(stranger, says):
    state, actions = play(edge_round(), OPEN, stranger)
    assert verdicts(actions) == [Verdict.REFUSED] and says in actions[-1].reason
    assert state.waited_for == (7, 4)


@pytest.mark.parametrize("bad", [{"model_digest": "n"}, {"trouble": "It has values that are not finite."}])
def test_an_upload_with_bad_contents_is_the_devices_only_one(bad):
    tries = [upload(4, 101.0, "bad", **bad), upload(4, 102.0, "bad", **bad), upload(4, 103.0)]
    _, actions = play(edge_round(), OPEN, *tries, upload(7, 104.0))
    assert verdicts(actions) == [Verdict.REFUSED, Verdict.REFUSED, Verdict.REFUSED, Verdict.COUNTED]
    assert fates(actions) == {7: OutcomeKind.OK, 4: OutcomeKind.REFUSED}
    first, second = [action.reason for action in actions if isinstance(action, SendReceipt)][:2]
    assert first and first == second


def test_a_failed_device_is_not_waited_for():
    other_round = Failed(7, OLDER, "out of memory", 100.5)
    _, actions = play(edge_round(), OPEN, other_round, Failed(4, KEY, "out of memory", 101.0), upload(7, 102.0))
    assert fates(actions) == {7: OutcomeKind.OK, 4: OutcomeKind.FAILED}
    assert actions[-1].took_s == 2.0


def test_a_device_that_comes_back_gets_its_orders_with_the_time_left():
    state, actions = play(edge_round(), OPEN, Left(4, 101.0, "cut"), Joined(4, 104.0), Joined(9, 104.0))
    assert actions[2:] == [SendOrders(4, 6.0)]
    _, actions = play(state, upload(4, 105.0), Left(4, 105.5, "cut"), Joined(4, 106.0), upload(7, 106.0))
    assert not any(isinstance(action, SendOrders) for action in actions), "its upload is there"
    assert fates(actions) == {7: OutcomeKind.OK, 4: OutcomeKind.OK}


def test_a_device_that_stays_away_is_dropped_at_the_deadline_while_others_are_waited_for():
    state, _ = play(edge_round(), OPEN, Left(4, 101.0, "its process died"), Tick(109.0))
    assert state.next_tick_s == 110.0
    _, actions = play(state, Tick(110.0), Joined(4, 110.5))
    assert fates(actions) == {7: OutcomeKind.LATE, 4: OutcomeKind.DROPPED}
    assert actions[-1].outcomes[1].reason == "its process died"


def test_when_only_those_who_left_are_missing_the_round_closes_after_some_patience():
    state, _ = play(edge_round(rejoin_s=0.5), OPEN, Left(4, 101.0, "cut"), Left(7, 101.25, "cut"))
    assert state.next_tick_s == 101.75
    assert fates(play(state, Tick(101.75))[1]) == {7: OutcomeKind.DROPPED, 4: OutcomeKind.DROPPED}
    back, actions = play(state, Joined(7, 101.5))
    assert actions == [SendOrders(7, 8.5)] and back.next_tick_s == 110.0
    _, actions = play(back, upload(7, 105.0))  # 4 has been away for long enough by then
    assert fates(actions) == {7: OutcomeKind.OK, 4: OutcomeKind.DROPPED}
    assert actions[-1].took_s == 5.0


def test_patience_never_outlasts_the_deadline():
    state, _ = play(edge_round(rejoin_s=60.0, grace_s=0.25), OPEN, Left(4, 101.0, "cut"), Left(7, 109.0, "cut"))
    assert state.next_tick_s == 110.25


def test_who_is_not_there_at_the_start_gets_orders_on_joining():
    _, actions = play(edge_round(online=frozenset({7})), OPEN, Joined(4, 103.0))
    assert actions == [SendOrders(7, 10.0), SendOrders(4, 7.0)]
    early, actions = play(edge_round(online=frozenset()), Joined(4, 99.0), OPEN)
    assert actions == [SendOrders(4, 10.0)] and early.next_tick_s == 110.0


def test_an_upload_that_is_sent_again_to_a_restarted_edge_counts_before_its_orders_are_sent():
    _, actions = play(edge_round(), upload(4, 99.0), OPEN, upload(7, 101.0))
    assert [type(action) for action in actions] == [SendReceipt, SendOrders, SendReceipt, Close]
    assert fates(actions) == {7: OutcomeKind.OK, 4: OutcomeKind.OK}

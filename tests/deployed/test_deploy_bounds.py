"""Bounds of what members say, three strikes, updates that explode, and words that reach a log: pure functions."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from airprune.deployment import strikes
from airprune.deployment.bounds import most_loss, most_samples, within_class
from airprune.deployment.checks import trouble_in_measured, trouble_in_presence
from airprune.deployment.cloud_inputs import with_plan
from airprune.deployment.edge_state import EdgeState
from airprune.deployment.explosions import (
    REPORT,
    UpdateLength,
    bad_buffers,
    exploding,
    length_of_report,
    length_of_upload,
    moves_in_round,
)
from airprune.deployment.fleet.logs import JsonLines, PlainLines
from airprune.deployment.ledger import DeviceLedger
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import (
    Arrived,
    Close,
    EdgeRound,
    Opened,
    OutcomeKind,
    RoundKey,
    step,
    with_discounted,
)
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.strikes import OncePerMinute, Strikes
from airprune.errors import WorkFailed
from airprune.models.catalogue import FlatModel
from airprune.rounds.messages import Upload
from airprune.text import plain
from support.hostile import ESCAPES, SPEEDS
from support.tiny import tiny_scenario


@pytest.mark.parametrize("seconds", SPEEDS)
def test_a_speed_outside_the_bounds_is_refused_by_edge_and_cloud(seconds):
    rule = "seconds_per_sample must be between 1e-06 and 10000, got"
    assert rule in trouble_in_measured(pb.Measured(num_samples=1, seconds_per_sample=seconds))
    said = pb.Presence.Device(num_samples=1, seconds_per_sample=seconds)
    assert f"Device 0: {rule}" in trouble_in_presence(pb.Presence(devices=[said]), 1)


@pytest.mark.parametrize("seconds", [1e-6, 1.0, 1e4, 0.0])
def test_a_speed_within_the_bounds_or_not_measured_is_taken(seconds):
    assert trouble_in_measured(pb.Measured(num_samples=1, seconds_per_sample=seconds)) == ""


@pytest.mark.parametrize("said", [{"uplink_bps": math.inf}, {"uplink_bps": 2e12}, {"rtt_s": 1e9}, {"rtt_s": -1.0}])
def test_a_link_that_cannot_be_is_refused(said):
    assert f"{next(iter(said))} must be" in trouble_in_presence(pb.Presence(devices=[pb.Presence.Device(**said)]), 1)


def test_a_speed_is_compared_with_the_median_of_its_class():
    boards = dict.fromkeys(range(4), "native aarch64") | dict.fromkeys(range(4, 8), "native x86_64")
    seconds = {0: 1.0, 1: 2.0, 2: 3.0, 3: 250.0, 4: 1e-3, 5: 1e-3, 6: 1e-3, 7: 0.2}
    assert within_class(seconds, boards) == {3: pytest.approx(200.0), 7: pytest.approx(0.1)}
    assert within_class({0: 1.0, 1: 1.0, 2: 1e-3}, dict.fromkeys(range(3), "a")) == {2: pytest.approx(0.01)}


def test_a_class_of_ones_own_does_not_help_and_half_of_all_are_no_majority():
    classes = {0: "a", 1: "a", 2: "a", 3: "mine alone"}
    assert within_class({0: 1.0, 1: 1.0, 2: 1.0, 3: 1e4}, classes) == {3: pytest.approx(100.0)}
    assert within_class({0: 1.0, 1: 1.0, 2: 1e4, 3: 1e4}, dict.fromkeys(range(4), "a")) == {}
    assert within_class({0: 1.0, 1: 1e4}, dict.fromkeys(range(2), "a")) == {}


def test_losses_and_samples_are_bounded_by_what_was_ordered():
    scenario = tiny_scenario()  # two epochs, minibatches of 16
    assert most_loss(scenario, 10) == pytest.approx(100 * math.log(10), rel=1e-15)  # closed form
    assert most_samples(scenario.train, 30, None) == 60
    assert most_samples(scenario.train, 30, 7) == 112


def test_the_third_strike_sets_a_member_aside_until_the_run_has_ended():
    found = Strikes()
    assert [found.add("d3", "It lies.") for _ in range(4)] == [False, False, True, False]
    assert found.sentence("d3") == "d3 is set aside until the run has ended: It lies."
    assert not found.add("d2", "It lies.")
    found.clear()
    assert not found.aside and not found.add("d3", "It lies.")


def test_what_devices_report_to_be_followed_is_held_to_the_length_of_updates():
    """SCAFFOLD's control variates enter all devices' steps: one of 1e30 would end the training of all."""
    work = RunDefinition(
        scenario=tiny_scenario(**{"objective.name": "scaffold"}),
        input_shape=(8,),
        num_classes=4,
        num_devices=6,
        num_edges=2,
    )
    shape, gradients = work.shape, work.method.objective.gradients
    model = np.full(shape.num_state, 0.1)
    moves = moves_in_round(work.scenario.train, 0.05, [32, 32, 2**31])  # two epochs of two steps
    assert moves == pytest.approx(0.05 * 4, rel=1e-15)  # no momentum

    def refused(*entries: float) -> list[int]:
        reports = {n: {gradients[0]: np.full(shape.num_parameters, entry)} for n, entry in enumerate(entries)}
        lengths = {n: length_of_report(report, gradients, model, shape) for n, report in reports.items()}
        return sorted(exploding({n: length.scaled(moves) for n, length in lengths.items()}, REPORT))

    assert refused(0.01, 0.01, 1e29, 0.01) == [2]
    assert refused(0.01, 0.01, 0.51) == [2]  # as long as the model when it is followed for a round: 0.5
    assert refused(0.01, 0.01, 0.49) == [] and refused(0.4, 0.4, 3.9) == []
    assert length_of_report({}, gradients, model, shape) is None
    assert length_of_report({gradients[0]: model}, (), model, shape) is None


def test_means_and_variances_of_a_normalisation_are_compared_with_those_of_others():
    """A negative variance would make every later loss NaN, and honest devices fail."""
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6))
    shape = FlatModel(module).shape
    honest = np.concatenate([np.full(6, -0.5), np.full(6, 2.0)])  # means, variances
    negative, huge = honest.copy(), honest.copy()
    negative[-1], huge[0] = -1e-3, 1e30
    assert bad_buffers({0: honest, 1: honest, 2: 9 * honest}, shape) == {}
    found = bad_buffers({0: honest, 1: negative, 2: huge}, shape)
    assert sorted(found) == [1, 2]
    assert "running_var must not be negative" in found[1] and "running_mean must be at most 10" in found[2]
    assert sorted(bad_buffers({5: negative}, shape)) == [5] and bad_buffers({5: huge}, shape) == {}
    assert bad_buffers({}, shape) == {}


def test_one_device_without_a_plan_among_many_costs_few_plans():
    present = {n: (0, pb.Presence.Device(device=n)) for n in range(256)}
    tried = []

    def has_plan(devices) -> bool:
        tried.append(len(devices))
        return not {7, 200} & {*devices}

    assert sorted(with_plan({}, present, has_plan)) == [n for n in range(256) if n not in (7, 200)]
    assert len(tried) <= 2 * 2 * 8 + 1  # both halves at each of eight depths, for two devices
    assert with_plan({}, present, lambda devices: not devices) == {}


@pytest.mark.parametrize(
    ("lengths", "own", "names"),
    [
        ({0: 0.01, 1: 0.02, 2: 1e30}, 0.05, [2]),
        ({0: 0.01, 1: math.inf}, 0.05, [1]),
        ({0: 0.01, 1: math.nan, 2: 0.01}, 0.05, [1]),
        ({0: 0.01, 1: 0.06}, 0.05, []),  # longer than the model, but not beside the other
        ({0: 0.0001, 1: 0.04, 2: 0.0001}, 0.05, []),  # far longer than the others, but harmless
        ({0: 0.0001, 1: 0.06, 2: 0.0001}, 0.05, [1]),
        ({0: 40.0}, 0.05, []),  # alone: a thousand times the model
        ({0: 60.0}, 0.05, [0]),
        ({0: 5.0, 1: 6.0, 2: 7.0}, 0.05, []),  # a model that grows fast
        ({}, 0.05, []),
    ],
)
def test_only_updates_that_would_blow_up_the_model_are_refused(lengths, own, names):
    assert sorted(exploding({name: UpdateLength(length, own) for name, length in lengths.items()})) == names


def test_devices_that_take_more_steps_may_move_further():
    lengths = {0: UpdateLength(0.004, 0.03, 1), 1: UpdateLength(0.05, 0.03, 12), 2: UpdateLength(0.004, 0.03, 1)}
    assert exploding(lengths) == {}
    assert sorted(exploding({**lengths, 1: UpdateLength(0.05, 0.03, 1)})) == [1]


def test_only_what_was_trained_and_sent_has_a_length():
    work = RunDefinition(scenario=tiny_scenario(), input_shape=(8,), num_classes=4, num_devices=6, num_edges=2)
    shape = work.shape
    received, mask = np.full(shape.num_state, 2.0), np.zeros(shape.prunable_weights, dtype=bool)
    state = received + 1.0
    state[shape.prunable] = 1e30  # not sent
    numbers = dict.fromkeys(("code_error", "loss", "gradient_sq_max", "gradient_noise_sq", "smoothness"), 0.0)
    numbers |= {"sent_bits": 0.0, "pruning_error_sq": 0.0, "num_samples": 1}
    upload = Upload(state=state, mask=mask, message=None, report={}, memory={}, **numbers)
    assert length_of_upload(upload, received, shape, 3) == pytest.approx((1.0, 2.0, 3))
    zeros = np.zeros(shape.num_state)
    assert length_of_upload(upload._replace(state=zeros + 1.0), zeros, shape) == pytest.approx((1.0, 1.0, 1))


def test_an_upload_refused_after_the_round_has_closed_does_not_count_as_a_duplicate_later():
    key, done = RoundKey("r", 0, 0), []
    round_ = EdgeRound(key=key, model_digest="m", selected=(0, 1), deadline_s=1.0, online=frozenset({0, 1}))
    uploads = [
        Arrived(device=n, key=key, model_digest="m", digest=f"u{n}", at_s=0.5, compute_s=0, uplink_s=0, num_bytes=9)
        for n in (0, 1)
    ]
    for event in (Opened(0.0), *uploads):
        round_, actions = step(round_, event)
        done += [action for action in actions if isinstance(action, Close)]
    round_, close = with_discounted(round_, done[0], OutcomeKind.REFUSED, {1: "It explodes."})
    assert [outcome.fate for outcome in close.outcomes] == [OutcomeKind.OK, OutcomeKind.REFUSED]
    assert close.outcomes[1].reason == "It explodes."
    assert round_.counted_so_far == {key: {0: "u0"}}


def test_words_of_others_have_no_control_characters_in_any_log():
    record = logging.LogRecord("airprune", logging.INFO, "", 0, "Refused %s", (ESCAPES,), None)
    lines = PlainLines("%(message)s").format(record)
    assert lines.replace("\n", "").isprintable() and "\\x1b[2J" in lines
    line = JsonLines("e0").format(record)
    assert line.isprintable() and json.loads(line)["message"] == f"Refused {ESCAPES}"
    assert plain(ESCAPES).isprintable() and plain("d0 says hello, ü") == "d0 says hello, ü"


def test_a_sentence_that_repeats_is_logged_once_a_minute_with_the_number_of_repetitions(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "airprune")
    now_s, said = [0.0], OncePerMinute()
    monkeypatch.setattr(strikes.time, "monotonic", lambda: now_s[0])
    for second in range(100):
        now_s[0] = float(second)
        said.info("Refused %s: %s", "d3", ESCAPES, of="d3")
        said.info("Refused %s: %s", "d4", str(second), of="d4")
    of_d3 = [record.getMessage() for record in caplog.records if "d3" in record.getMessage()]
    assert len(of_d3) == 2 and of_d3[1].endswith(" (59 times more in the minute before)")
    assert of_d3[0].isprintable()
    assert len(said._last) <= strikes._REMEMBERED


@pytest.mark.parametrize(
    ("load", "node"),
    [
        (lambda path: EdgeState.load(path, run="r", slots=()), "edge"),
        (lambda path: DeviceLedger.load(path, run="r"), "device"),
    ],
)
def test_a_damaged_state_file_names_itself_and_the_command_that_starts_without_it(tmp_path: Path, load, node):
    path = tmp_path / "my state.safetensors"
    path.write_bytes(np.random.default_rng(0).bytes(100))
    with pytest.raises(WorkFailed, match=rf"`rm '{path}'` and start the {node} again"):
        load(path)
    path.unlink()
    load(path)

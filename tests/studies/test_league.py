"""The league: fair statistics, tracks, and tables that compare like with like."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

import airprune as ap
from airprune.errors import UnknownName
from airprune.methods import METHODS, Recipe
from airprune.results.latex import escaped
from airprune.results.statistics import Estimate, pareto_front
from airprune.rounds.records import EdgeRecord, record_from
from airprune.scenario.model_shape import shape_of
from airprune.studies.claims.student import student_p
from airprune.studies.league.finished import statistics_of
from airprune.studies.league.lineup import ALONE, CENTRAL, FP32, SEED, WHOLE, lineup
from airprune.studies.league.runs import backhaul_bits, league_run
from airprune.studies.league.standings import By, Result, standings
from airprune.studies.league.statistics import gap, holm, paired_p
from airprune.studies.league.tables import csv_rows, gap_text, latex, rounded, shown
from airprune.studies.league.tracks import REPRESENTATIVE, TRACKS, tracks_named
from airprune.studies.league.tuning import RATE
from support.league import BASE, made_up, run_of
from support.web_runs import edge_line

# Statistics


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30])
def test_student_p_is_scipys(freedom):
    t = np.array([0.0, 0.3, -1.7, 2.776, 12.0])
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert [student_p(float(x), freedom) for x in t] == pytest.approx(expected, abs=1e-13)  # a finite sum near 1


def test_paired_differences_have_scipys_interval_and_p():
    rng = np.random.default_rng(0)
    for count in (2, 5, 10):
        mine, other = rng.normal(0.7, 0.05, count), rng.normal(0.68, 0.05, count)
        found = gap(dict(enumerate(mine)), dict(enumerate(other)))
        whole = stats.ttest_rel(mine, other)
        low, high = whole.confidence_interval(0.95)
        assert found.difference.mean == pytest.approx((low + high) / 2)
        assert found.difference.half_width == pytest.approx((high - low) / 2, rel=1e-3)  # quantiles of four digits
        assert found.p == pytest.approx(whole.pvalue, abs=1e-12)


def test_differences_are_taken_on_the_seeds_that_both_have():
    found = gap({0: 0.7, 1: 0.8, 2: 0.9}, {1: 0.5, 2: 0.6, 3: 0.0})
    assert found.difference.mean == pytest.approx(0.3) and gap({0: 1.0}, {1: 1.0}) is None
    assert math.isnan(gap({0: 0.7}, {0: 0.5}).p)


def test_equal_runs_differ_by_nothing_and_a_constant_difference_is_no_chance():
    assert paired_p([0.0, 0.0, 0.0]) == 1.0 and paired_p([0.25, 0.25]) == 0.0


def test_holm_by_hand():
    """0.01 × 4; 0.02 × 3 = 0.06; 0.03 × 2 = 0.06; 0.9 × 1: and never below the one before."""
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8]) and holm([0.9, 0.9]) == [1.0, 1.0]
    corrected = holm([0.01, math.nan, 0.04])
    assert corrected[0] == pytest.approx(0.02) and math.isnan(corrected[1]) and corrected[2] == pytest.approx(0.04)


def test_the_pareto_front_has_who_is_beaten_by_nobody():
    points = [(3.0, 0.9), (1.0, 0.5), (2.0, 0.4), (2.0, 0.7), (4.0, 0.9), (1.0, 0.3)]
    front = pareto_front(points)
    assert [points[i] for i in front] == [(1.0, 0.5), (2.0, 0.7), (3.0, 0.9)]
    for i, (cost, value) in enumerate(points):
        beaten = any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points)
        assert (i in front) != beaten


# What is read of a run


def test_accuracy_at_a_time_is_that_of_the_last_model_before_it():
    run = run_of(0.3, 0.6, 0.5, round_s=0.1)
    assert run.accuracy == 0.5
    assert [run.accuracy_by(t) for t in (0.1, 0.199, 0.2, 9.0)] == [0.3, 0.3, 0.6, 0.5]
    assert math.isnan(run.accuracy_by(0.05)), "no model was there yet"
    assert run.has_room_by(0.41) and not run.has_room_by(0.39)


def test_conduct_counts_late_rounds_ratios_and_coverage_by_hand():
    record = record_from(json.loads(edge_line(1)))
    assert isinstance(record, EdgeRecord)
    first = dataclasses.replace(
        record, edge_latency_s=(0.02, 0.04), pruning_ratio=(0.1, 0.3, 0.9, None), fate=("ok", "ok", "late", "blocked")
    )
    own = dataclasses.replace(first, edge_latency_s=(0.02, None), deadline_s=0.01)
    found = statistics_of([first, own], deadline_s=0.03)
    assert found.mean_ratio == pytest.approx(0.2) and found.max_ratio == 0.3
    assert found.late_share == pytest.approx(2 / 3), "0.04 of the first round, and 0.02 after a deadline of its own"
    assert (found.min_count, found.uncovered) == (1, 1)


# Divisions and line-up


def test_track_b_halves_the_bits_and_keeps_the_pressure():
    """aW + (30 ms − aW) / 2 with a = 40 / 3 GHz and W = 43,888."""
    changed = TRACKS["B"].scenario(BASE)
    compute_s = 40 / 3e9 * 43_888
    assert changed.plan.bits_per_weight == 32
    assert (
        changed.plan.deadline_s
        == pytest.approx(compute_s + (0.03 - compute_s) / 2)
        == pytest.approx(0.015293, rel=1e-4)
    )


@pytest.mark.parametrize("name", [name for name, track in TRACKS.items() if track.exists])
def test_every_track_has_its_references(name):
    track = TRACKS[name]
    found = lineup(BASE, track)
    names = [entry.name for entry in found.entries]
    assert {SEED, FP32, "variance", WHOLE, ALONE, CENTRAL} <= set(names) and len(set(names)) == len(names)
    whole = next(entry for entry in found.entries if entry.name == WHOLE)
    assert whole.scenario.plan.scheme == "no-pruning" and not whole.is_method
    alone, everything = (next(e for e in found.entries if e.name == one) for one in (ALONE, CENTRAL))
    scene = track.scenario(BASE)
    assert alone.scenario.num_devices == everything.scenario.num_devices == 1
    assert everything.scenario.data.train_samples == scene.data.train_samples
    assert not alone.has_costs and not everything.has_costs


def test_all_methods_take_part_in_the_papers_track_and_representative_ones_in_the_others():
    names = {
        name: {e.name for e in lineup(BASE, TRACKS[name]).entries if e.is_method} for name in ("A", "B", "D1", "G")
    }
    assert names["A"] == set(METHODS)
    assert set(REPRESENTATIVE) <= set(METHODS) and 20 <= len(REPRESENTATIVE) <= 26
    assert names["G"] == set(REPRESENTATIVE)
    assert "mem-sgd" not in names["B"] and "frozen-pruning" in names["B"], "codes choose their own bits"
    fedavg = lineup(BASE, TRACKS["D1"], ["fedavg", "hierfavg"])
    assert [one.name for one in fedavg.absent] == ["fedavg"], "without edges there are no non-IID edges"


@pytest.mark.parametrize("name", ["D3", "D4", "E", "G", "H", "I", "J1", "J2", "J3", "J6", "J7", "J8"])
def test_a_tracks_preset_changes_the_leagues_scenario_as_it_changes_the_demo(name):
    track = TRACKS[name]
    preset, demo = ap.Scenario.preset(track.preset), ap.Scenario.preset("demo")
    changed = {key for key, _, _ in demo.diff(preset)} - {"name"}
    small = BASE.with_values({"rounds.global_rounds": 2, "data.train_samples": 1_000})
    found = track.scenario(small)
    of_track = {"stop.time_s", "rounds.global_rounds"} if track.is_timed else set()
    of_track |= set(track.settings(small))
    assert {key for key, _, _ in small.diff(found)} <= changed | of_track and changed
    assert found.data.train_samples == 1_000 and (track.is_timed or found.rounds.global_rounds == 2)


def test_the_full_schedule_is_that_of_table_i():
    full = TRACKS["K"].scenario(BASE)
    assert (full.data.train_samples, full.train.batch_size) == (50_000, 128)
    assert (full.rounds.global_rounds, full.rounds.edge_rounds) == (10, 5)


def test_tracks_are_chosen_by_letter_or_preset_in_the_order_named_and_unknown_ones_refused():
    assert [one.name for one in tracks_named("d, A")] == ["D1", "D2", "D3", "D4", "A"]
    assert [one.name for one in tracks_named("wide,accelerators")] == ["G", "J2"]
    assert [one.name for one in tracks_named("all")] == [name for name, track in TRACKS.items() if track.exists]
    with pytest.raises(UnknownName, match="track"):
        tracks_named("Z")


@pytest.mark.parametrize("method", ["adaptive-pruning", "h-sgd", "fedavg", "fogfl", "d2d-fedavg", "lanfl", "tt-prune"])
def test_every_link_of_every_run_is_charged(method):
    """Unless the scenario has its own rate."""
    scenario = league_run("x", BASE.with_("method", method), 0).scenario
    assert scenario.radio.downlink == "broadcast"
    options = scenario.to_dict()["topology"].get(scenario.topology.name) or {}
    assert options.get("backhaul_bps", 1e9) == 1e9
    slow = BASE.with_values({"topology.hierarchical.backhaul_bps": 1e6, "radio.downlink": "unicast"})
    kept = league_run("x", slow, 0).scenario
    assert (kept.topology.hierarchical.backhaul_bps, kept.radio.downlink) == (1e6, "unicast")


def test_the_open_track_runs_longer():
    entry = lineup(BASE, TRACKS["C"]).entries[0]
    assert entry.scenario.rounds.global_rounds == 4 * BASE.rounds.global_rounds and TRACKS["C"].by is By.TIME


def test_a_methods_own_settings_win_over_the_divisions():
    found = {entry.name: entry.scenario for entry in lineup(BASE, TRACKS["A"]).entries}
    assert found["adaptive-bits"].plan.deadline_s == "auto" and found[SEED].plan.deadline_s == 0.03
    assert found["liu2022"].plan.deadline_s == pytest.approx(0.35), "the paper's own for a network without edges"


def test_a_users_method_plays_by_its_name(unregistered):
    ap.register(Recipe(name="mine", summary="my own", settings={"train.momentum": 0.5}))
    found = {entry.name: entry for entry in lineup(BASE, TRACKS["A"]).entries}
    assert found["mine"].scenario.train.momentum == 0.5 and found["mine"].label == "own"
    few = [entry.name for entry in lineup(BASE, TRACKS["A"], ["mine"]).entries]
    assert "mine" in few and "hierfavg" not in few


# Standings


@pytest.fixture(scope="module")
def table():
    return made_up()


def test_standings_are_ordered_by_the_mean_and_have_ranges_of_ranks(table):
    assert [row.entry.name for row in table.rows][:3] == [FP32, "frozen-pruning", SEED]
    placed = {row.entry.name: None if row.ranks[By.ROUNDS] is None else str(row.ranks[By.ROUNDS]) for row in table.rows}
    assert placed == {
        FP32: "1", "frozen-pruning": "2", SEED: "3", "variance": "3", "mem-sgd": "4", WHOLE: None, ALONE: None,
        CENTRAL: None,
    }  # fmt: skip


def test_methods_of_the_same_learning_are_folded_and_share_a_rank(table):
    row = table.row("variance")
    assert row.same_as == SEED and row.remarks == (f"same learning as {SEED}, at the same costs",)
    assert table.row(SEED).same_as == "" and table.row(FP32).remarks == ()
    slower = {seed: run_of(0.5, 0.70 + 0.001 * seed, round_s=1.5) for seed in range(3)}
    results = [row.result for row in table.rows if row.entry.name != "variance"]
    other = dataclasses.replace(row.result, runs=slower)
    found = standings(TRACKS["A"], [*results, other], seeds=(0, 1, 2), horizon_s=2.0).row("variance")
    assert found.remarks == (f"same learning as {SEED}; differs in time",)
    noisy = {seed: run_of(0.5, 0.71, round_s=1.0) for seed in range(3)}
    other = dataclasses.replace(row.result, runs=noisy)
    assert standings(TRACKS["A"], [*results, other], seeds=(0, 1, 2)).row("variance").same_as == ""


def test_a_slow_method_is_compared_by_its_last_model_before_that_time(table):
    whole = table.row(WHOLE)
    assert whole.accuracy[By.TIME].mean == 0.6 and whole.accuracy[By.ROUNDS].mean == pytest.approx(0.801)


def test_equal_time_is_empty_for_a_method_that_ended_before_it(table):
    early = table.row("mem-sgd")
    assert early.ends_early and early.accuracy[By.TIME] is None and early.ranks[By.TIME] is None
    assert early.accuracy[By.ROUNDS].mean == pytest.approx(0.601)
    assert table.row(SEED).accuracy[By.TIME].mean == pytest.approx(0.701)


def test_the_compared_time_is_that_of_the_papers_method_in_its_own_runs(table):
    results = [row.result for row in table.rows]
    assert standings(TRACKS["A"], results, seeds=(0, 1, 2)).horizon_s == 2.0
    slower = [
        dataclasses.replace(one, runs={s: run_of(0.5, 0.7, round_s=1.0 + 0.1 * s) for s in range(3)})
        if one.entry.name == SEED
        else one
        for one in results
    ]
    assert standings(TRACKS["A"], slower, seeds=(0, 1, 2)).horizon_s == pytest.approx(2.4), "its longest run"


def test_a_method_of_other_work_is_not_compared_at_equal_rounds(unregistered):
    ap.register(Recipe(name="lazy", summary="one step", other_work="one minibatch per round"))
    entry = next(one for one in lineup(BASE, TRACKS["A"], ["lazy"]).entries if one.name == "lazy")
    runs = {seed: run_of(0.5, 0.9) for seed in range(3)}
    row = standings(TRACKS["A"], [Result(entry=entry, runs=runs)], seeds=(0, 1, 2), horizon_s=2.0).row("lazy")
    assert row.accuracy[By.ROUNDS] is None and row.accuracy[By.TIME].mean == 0.9
    assert row.remarks == ("prunes no device here", "other work per round: one minibatch per round") or (
        "other work per round: one minibatch per round" in row.remarks
    )


def test_a_method_that_never_prunes_says_so(table):
    result = table.row(SEED).result
    never = {
        seed: dataclasses.replace(run, conduct=dataclasses.replace(run.conduct, mean_ratio=0.0, max_ratio=0.0))
        for seed, run in result.runs.items()
    }
    found = standings(TRACKS["A"], [dataclasses.replace(result, runs=never)], seeds=(0, 1, 2))
    assert found.row(SEED).remarks == ("prunes no device here",)
    assert "prunes no device here" in shown(found)[0].rows[0][-1]


def test_a_table_says_if_tuned_is_worse_than_untuned(table):
    result = table.row(SEED).result
    better = {seed: run_of(0.5, 0.74 + 0.001 * seed) for seed in range(3)}
    tuned = dataclasses.replace(result, knobs={RATE: 0.1}, untuned=better)
    found = standings(TRACKS["A"], [tuned], seeds=(0, 1, 2))
    assert found.row(SEED).remarks == ("tuned is 4.0 points worse than untuned",)
    other = dataclasses.replace(tuned, untuned=result.runs, runs=better)
    assert standings(TRACKS["A"], [other], seeds=(0, 1, 2)).row(SEED).remarks == ()


def test_the_target_is_95_percent_of_no_pruning_and_not_reaching_it_is_a_value(table):
    assert table.target == pytest.approx(0.95 * 0.801)
    rows = {row["method"]: row for row in csv_rows(table)}
    assert rows[FP32]["time_to_target_s"] == 2.0
    assert rows[SEED]["time_to_target_s"] == rows[SEED]["joules_to_target"] == "not reached"
    assert rows[SEED]["reached"] == "0 of 3" and rows[ALONE]["reached"] is None


def test_bits_to_the_target_are_of_all_links_and_each_link_has_a_column(table):
    """Two rounds to the target, each with 1 + 2 + 3 + 4 Mbit up, down, on the backhaul and between devices."""
    rows = {row["method"]: row for row in csv_rows(table)}
    kinds = ("bits", "uplink_bits", "downlink_bits", "backhaul_bits", "d2d_bits")
    assert [rows[FP32][f"{name}_to_target"] for name in kinds] == [20e6, 2e6, 4e6, 6e6, 8e6]
    assert [rows["mem-sgd"][f"{name}_to_target"] for name in kinds] == ["not reached"] * 5
    standing, diagnostics = shown(table)
    cells = next(row for row in standing.rows if row[1].startswith(FP32))
    at = standing.header.index("of these uplink")
    assert (cells[at - 1], cells[at]) == ("20.0", "2.00") and standing.header[at - 1].startswith("Mbit to")
    cells = next(row for row in diagnostics.rows if row[0].startswith(FP32))
    place = [diagnostics.header.index(f"{one} (Mbit to target)") for one in ("downlink", "edges and cloud")]
    assert [float(cells[i]) for i in place] == [4.0, 6.0]


def test_joules_are_labelled_as_a_models(table):
    assert next(name for name in shown(table)[0].header if name.startswith("J to")).endswith("(model)")


@pytest.mark.parametrize(
    ("mean", "width", "text"),
    [
        (79.834, 0.872, "79.8 ± 0.9"),
        (79.834, 0.172, "79.8 ± 0.2"),
        (12.634, 13.4, "13 ± 13"),
        (0.026504, 2.2e-7, "0.0265"),
        (0.361, 0.0123, "0.361 ± 0.012"),
        (123_456.0, 4_321.0, "123,456 ± 4,321"),
        (5.0, math.nan, "5.00"),
    ],
)
def test_numbers_have_the_digits_of_their_interval(mean, width, text):
    assert rounded(Estimate(mean, width)) == text


def test_a_run_that_diverged_is_shown_as_such(table):
    calm = table.row(FP32).result
    runs = dict(calm.runs) | {0: run_of(0.3, math.nan, round_s=0.1)}
    assert runs[0].has_diverged and not runs[1].has_diverged and not runs[0].has_room_by(9.0)
    others = [row.result for row in table.rows if row.entry.name != FP32]
    result = dataclasses.replace(calm, runs=runs, untuned=runs)
    found = standings(TRACKS["A"], [result, *others], seeds=(0, 1, 2), horizon_s=2.0)
    cells = next(row for row in shown(found)[0].rows if row[1].startswith(FP32))
    assert "1 of 3 diverged" in cells
    json.dumps(csv_rows(found), allow_nan=False)


def test_gaps_are_paired_corrected_and_marked(table):
    row = table.row("frozen-pruning")
    assert gap_text(row.gaps[By.TIME, SEED]) == "+5.0 *"
    assert table.row("variance").gaps[By.TIME, SEED].p_holm == 1.0
    assert table.row(SEED).gaps[By.TIME, SEED] is None and gap_text(None) == "–"


def test_a_method_that_ended_early_and_one_that_sends_codes_are_marked(table):
    names = [row[1] for row in shown(table)[0].rows]
    assert "mem-sgd ◇†" in names and SEED in names and "fp32 ◇" in names


def test_a_model_on_its_way_to_the_cloud_has_the_bits_that_a_run_charges():
    whole = shape_of(BASE).num_weights
    found = {name: backhaul_bits(BASE.with_("method", name)) for name in ("hierfavg", "scaffold", "hier-qsgd")}
    assert found["hierfavg"] == 64 * whole and found["scaffold"] == 2 * found["hierfavg"]
    assert found["hier-qsgd"] == 6 * whole + 64 * 4  # sign and 17 levels; a norm for each of four tensors
    personal = BASE.with_("method", "japp")
    assert backhaul_bits(personal) == 64 * (whole - 10 * 8)  # its last layer stays on the devices


def test_device_memory_is_that_of_the_declared_slots(table):
    assert table.row("mem-sgd").state_bytes == 43_888 * 4 and table.row(SEED).state_bytes == 0


def test_every_table_is_rectangular_and_latex_has_each_row_escaped(table):
    for one in shown(table):
        assert {len(row) for row in one.rows} == {len(one.header)} and set(one.words) <= set(one.header)
    text = latex([table], note="100 % & more")
    assert text.count(r" \\") == 1 + len(table.rows) and r"\toprule" in text
    assert (
        escaped("a_b & 5 % ± {x} \\ −1") == r"a\_b \& 5 \% $\pm$ \{x\} \textbackslash{} $-$1"
        and escaped("-2") == "$-$2"
    )


def test_in_a_timed_track_every_method_runs_as_long_as_the_rounds_take_at_the_deadline():
    for name in ("J1", "J2", "J3"):
        track = TRACKS[name]
        found = {entry.name: entry.scenario for entry in lineup(BASE, track, ["fp32", "adaptive-work"]).entries}
        scene = ap.Scenario.preset(track.preset)
        time_s = BASE.rounds.global_rounds * BASE.rounds.edge_rounds * scene.plan.deadline_s
        assert track.time_s(BASE) == time_s
        for method in ("fp32", "adaptive-work", WHOLE):
            assert found[method].stop.time_s == time_s and found[method].rounds.global_rounds >= 1000
        assert found[CENTRAL].stop.time_s is None
        assert found[CENTRAL].rounds.global_rounds == BASE.rounds.global_rounds
        assert found["fp32"].data.partition == ("dirichlet" if name == "J3" else BASE.data.partition)
    assert TRACKS["A"].time_s(BASE) is None

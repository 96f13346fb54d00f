"""The paper's figures and claims: made of runs, judged from files, flipped by other files."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import airprune as ap
from airprune.results.measures import TO_TARGET
from airprune.results.tidy import read_rows, write_rows
from airprune.runs.layout import RunFolder
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun
from airprune.studies.claims import Verdict, combined
from airprune.studies.claims.agreement import page_p
from airprune.studies.claims.intervals import judge_better, judge_trend
from airprune.studies.paper import fair, fig2, fig3, fig4, fig5, fig6, frozen, table1
from airprune.studies.paper.profiles import PROFILES, Profile
from airprune.studies.paper.reproduction import ARTEFACTS, CLAIMS, Reproduction, judged, write_claims

TINY = Profile(
    name="tiny",
    note="for tests",
    seeds=(0, 1),
    presets=("smoke",),
    samples_per_device=20,
    target_accuracy=0.1,
    changes={"rounds.global_rounds": 2, "rounds.edge_rounds": 1, "data.test_samples": 100, "engine.name": "serial"},
)


def finish(reproduction: Reproduction, names: list[str]) -> None:
    reproduction.out.mkdir(parents=True, exist_ok=True)
    artefacts = [ARTEFACTS[name] for name in names]
    campaign = Campaign(reproduction.campaign(artefacts).runs, reproduction.runs)
    for _ in campaign.outcomes(campaign.missing()):
        pass
    for artefact in artefacts:
        reproduction.write(artefact)


def with_values(run: CampaignRun, values: dict, **fields: str) -> CampaignRun:
    return dataclasses.replace(run, scenario=run.scenario.with_values(values), **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    reproduction = Reproduction(profile=TINY, seeds=TINY.seeds, out=tmp_path_factory.mktemp("reproduction"))
    finish(reproduction, ["table1", "table2", "fig4", "fig5", "fig6", "bound", "errata"])
    write_claims(reproduction.out)
    return reproduction.out


def test_runs_side_by_side_end_in_the_bytes_of_runs_one_by_one_and_one_that_fails_stops_no_other(folder, tmp_path):
    mine = Reproduction(profile=TINY, seeds=(0,), out=tmp_path)
    runs = [with_values(run, WITHIN) for run in mine.campaign([ARTEFACTS["fig5"]]).runs[:2]]
    nowhere = with_values(runs[0], {"network.table": str(tmp_path / "gone.csv")}, folder_name="x")
    campaign = Campaign([*runs, nowhere], mine.runs, EngineSection(name="processes", workers=2))
    ended = {outcome.run.folder_name: outcome.trouble for outcome in campaign.outcomes(campaign.runs)}
    assert [ended[run.folder_name] for run in runs] == [None, None] and "gone.csv" in ended["x"]
    for run in runs:
        for name in ("records.jsonl", "final.safetensors"):
            bytes_of_both = [(path / "runs" / run.folder_name / name).read_bytes() for path in (tmp_path, folder)]
            assert bytes_of_both[0] == bytes_of_both[1]
    missing = mine.campaign([ARTEFACTS["fig5"]]).missing()
    assert len(missing) == len(ARTEFACTS["fig5"].training.series) - 2


def verdicts(folder) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in judged(folder)}


def test_claims_are_judged_again_from_the_csv_files_alone(folder, tmp_path):
    written = json.loads((folder / "claims.json").read_text())
    for path in folder.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert json.loads(json.dumps(judged(tmp_path))) == written
    assert len(written) >= 14


@pytest.mark.parametrize(
    ("claim", "table", "change", "verdict"),
    [
        ("table-2-numbers", "table2", lambda row: {"mean_ms": row["mean_ms"] * 1.2}, "does not hold"),
        ("flat-ten-times-slower", "table2", lambda row: {"mean_ms": 100.0}, "does not hold"),
        ("more-band-prunes-less", "fig6", lambda row: {"pruning_ratio": row["bandwidth_share"]}, "does not hold"),
        (
            "theorem-1-holds",
            "bound",
            lambda row: {"measured": row["corrected"] * 2, "departures": ""},
            "does not hold",
        ),
        ("theorem-1-holds", "bound", lambda row: {"trivial": row["tight"] * 2, "departures": ""}, "holds"),
        ("theorem-1-holds", "bound", lambda row: {"departures": ""}, "not testable here"),
        (
            "theorem-1-holds",
            "bound",
            lambda row: {"trivial": row["tight"] * 2, "departures": "momentum 0.9"},
            "not testable here",
        ),
        ("erratum-identity", "errata", lambda row: {"observed": "no"}, "does not hold"),
        ("iid-beats-non-iid", "fig5", lambda row: {"test_accuracy": float("IID" in row["series"])}, "holds"),
        (
            "iid-beats-non-iid",
            "fig5",
            lambda row: {"test_accuracy": float("IID" not in row["series"])},
            "does not hold",
        ),
        ("hierarchy-beats-flat", "fig4", lambda row: {"test_accuracy": float(row["series"] == "optimal")}, "holds"),
        (
            "hierarchy-beats-flat",
            "fig4",
            lambda row: {"test_accuracy": float(row["series"] != "optimal")},
            "does not hold",
        ),
        (
            "communication-halved",
            "fig4",
            lambda row: {"uploaded_weights": 1 + (row["series"] == "no-pruning")},
            "holds",
        ),
        ("communication-halved", "fig4", lambda row: {"uploaded_weights": 1.0}, "does not hold"),
        ("optimal-close-to-no-pruning", "fig4", lambda row: {"test_accuracy": 0.8}, "holds"),
        (
            "optimal-close-to-no-pruning",
            "fig4",
            lambda row: {"test_accuracy": 0.5 if row["series"] == "optimal" else 0.8},
            "does not hold",
        ),
    ],
)
def test_a_doctored_table_decides_the_verdict(folder, tmp_path, claim, table, change, verdict):
    for path in folder.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_rows(tmp_path / f"{table}.csv", [{**row, **change(row)} for row in read_rows(folder / f"{table}.csv")])
    assert verdicts(tmp_path)[claim] == verdict
    if table in ("table2", "fig6", "errata"):
        assert verdicts(folder)[claim] == "holds"  # as measured


def made_up(figure, accuracy) -> list[dict]:
    """A table of curves in which a series ends where `accuracy` says, one round, two seeds."""
    names = ("test_accuracy", "test_loss")
    return [
        {
            "preset": "p",
            "series": series,
            "seed": float(seed),
            "global_round": 1.0,
            "time_s": 1.0,
            "uploaded_weights": 1.0,
            **dict(zip(names, (accuracy(series) + 1e-4 * seed, 1 - accuracy(series)), strict=True)),
        }
        for series in figure.series
        for seed in (0, 1)
    ]


def test_frozen_pruning_is_judged_by_the_papers_tests_on_runs_of_its_own(tmp_path):
    write_rows(tmp_path / "fig4.csv", made_up(fig4.FIGURE, lambda series: 0.76 if series == "no-pruning" else 0.7))
    write_rows(tmp_path / "frozen.csv", made_up(frozen.FIGURE, lambda series: 0.759))
    found = verdicts(tmp_path)
    assert found["optimal-close-to-no-pruning"] == "does not hold"
    assert found["frozen-optimal-close-to-no-pruning"] == "holds"


def test_every_series_that_a_frozen_claim_reads_is_there():
    """Each judge finds its series, all of those that prune being frozen: none of the zeroed ones is left."""
    figures = {"fig2": fig2, "fig3": fig3, "fig4": fig4, "fig5": fig5}
    for name, module in figures.items():
        rows = frozen.in_place(name, made_up(module.FIGURE, lambda _: 0.1), made_up(frozen.FIGURE, lambda _: 0.9))
        assert {row["series"] for row in rows} == set(module.FIGURE.series)
        left = {row["series"] for row in rows if row["test_accuracy"] < 0.5}
        assert all("no-pruning" in series or "ρ = 0" in series[-5:] or "equal" in series for series in left)
    scenarios = [scenario for *_, scenario in frozen.FIGURE.scenarios(PROFILES["default"], (0,))]
    assert {scenario.masking.name for scenario in scenarios} == {"frozen"}
    assert {scenario.plan.scheme for scenario in scenarios} == {"optimal"}


def test_time_to_the_target_is_that_of_the_runs(folder):
    rows = read_rows(folder / "fig4_target.csv")
    assert {row["series"] for row in rows} == set(fig4.FIGURE.series) and len(rows) == 6 * len(TINY.seeds)
    curves = read_rows(folder / "fig4.csv")
    for row in rows:
        mine = [r for r in curves if (r["series"], r["seed"]) == (row["series"], row["seed"])]
        reached = [r["time_s"] for r in mine if r["test_accuracy"] >= TINY.target_accuracy]
        assert row["time_to_target_s"] == (reached[0] if reached else None)
        assert row["reached"] == str(bool(reached))


@pytest.mark.parametrize(
    ("optimal", "verdict"),
    [
        ((0.5, 0.55, 0.52), "holds"),
        ((1.5, 1.55, 1.52), "does not hold"),
        ((0.5, 1.5, 1.0), "cannot be decided"),
        ((0.5, None, None), "cannot be decided"),  # not reached: the one seed that did does not save it
        ((0.5, 0.5, None), "cannot be decided"),
        ((0.5, 0.6, 0.5, 0.55, 0.6, None), "cannot be decided"),
        ((None,) * 6, "does not hold"),
    ],
)
def test_sooner_is_judged_seed_by_seed_and_failing_is_no_help(tmp_path, optimal, verdict):
    write_times(tmp_path, optimal=optimal, no_pruning=(1.0,) * len(optimal))
    assert verdicts(tmp_path)["optimal-reaches-target-sooner"] == verdict


def write_times(folder, *, optimal, no_pruning) -> None:
    """A table of seconds to the target by seed; None: not reached."""
    rows = [
        {
            "preset": "p",
            "series": series,
            "seed": seed,
            "target_accuracy": 0.65,
            "reached": value is not None,
            **dict.fromkeys(TO_TARGET, value),
        }
        for series, values in {"optimal": optimal, "no-pruning": no_pruning}.items()
        for seed, value in enumerate(values)
    ]
    write_rows(folder / "fig4_target.csv", rows)


def test_runs_shared_by_figures_are_made_once(tmp_path):
    mine = Reproduction(profile=PROFILES["default"], seeds=(0,), out=tmp_path)
    fig4, fig5 = ARTEFACTS["fig4"], ARTEFACTS["fig5"]
    both, *alone = (len(mine.campaign(artefacts).runs) for artefacts in ([fig4, fig5], [fig4], [fig5]))
    assert both == sum(alone) - 2  # IID with optimal and with no pruning are in both


def test_finished_runs_are_not_made_again(folder):
    reproduction = Reproduction(profile=TINY, seeds=TINY.seeds, out=folder)
    assert reproduction.campaign([ARTEFACTS["fig4"], ARTEFACTS["fig5"], ARTEFACTS["bound"]]).missing() == []


def test_an_interrupted_reproduction_continues_to_the_same_bytes(folder, tmp_path):
    reproduction = Reproduction(profile=TINY, seeds=(0,), out=tmp_path)
    first = reproduction.campaign([ARTEFACTS["fig4"]]).runs[0]
    here, there = (path / "runs" / first.folder_name for path in (tmp_path, folder))
    records = ap.run(first.scenario, out=here)
    next(records)
    records.close()
    assert not RunFolder(here).is_finished
    finish(reproduction, ["fig4"])
    assert (here / "records.jsonl").read_bytes() == (there / "records.jsonl").read_bytes()


def weights_in(bound) -> list[float]:
    """W, which the trivial bound φ² / W was divided by."""
    return [row["gradient_bound"] ** 2 / row["trivial"] for row in read_rows(bound)]


def test_the_bound_is_per_weight_of_the_model_that_was_trained(folder, tmp_path):
    # The paper's CNN: two convolutions, then 3,136 → 8 → 10 units. Below, 784 → 64 → 10 units.
    cnn = 32 * 9 + 64 * 32 * 9 + 3_136 * 8 + 8 * 10
    assert weights_in(folder / "bound.csv") == pytest.approx([cnn] * 2, rel=1e-12)  # a division undone
    mlp = dataclasses.replace(TINY, changes={**TINY.changes, "model.name": "mlp"})
    finish(Reproduction(profile=mlp, seeds=(0,), out=tmp_path), ["bound"])
    assert weights_in(tmp_path / "bound.csv") == pytest.approx([784 * 64 + 64 * 10] * 2, rel=1e-12)


def test_every_artefact_writes_its_tables_and_pictures(folder):
    for name in ("fig4", "fig5", "fig6", "bound"):
        for suffix in (".csv", ".png", ".pdf", ".svg"):
            assert (folder / f"{name}{suffix}").stat().st_size > 200
    assert (folder / "fig4.png").read_bytes()[:4] == b"\x89PNG"


def test_table_1_agrees_with_the_preset_to_the_letter():
    assert {row["agrees"] for row in table1.rows()} == {"yes"}
    changed = {row["key"] for row in table1.rows() if row["paper"] != row["paper_converged"]}
    assert changed == {"train.learning_rate"}


def test_every_claim_names_tables_that_some_artefact_writes():
    known = {table for artefact in ARTEFACTS.values() for table in artefact.tables}
    assert all(set(claim.tables) <= known for claim in CLAIMS)
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


def test_full_profile_is_table_1_on_both_presets():
    full = PROFILES["full"]
    scenario = full.scenario("paper", 0, {})
    assert dataclasses.asdict(full)["changes"] == {}
    assert (scenario.data.train_samples, scenario.rounds.global_rounds, scenario.edge_rounds_of) == (
        50_000,
        10,
        [5] * 5,
    )
    assert full.presets == ("paper", "paper-converged") and len(full.seeds) == 3


def test_fig6_ratios_fall_with_the_clock():
    rows = [row for row in fig6.rows() if row["kind"] == "optimal" and row["cycles_per_weight"] == 20]
    ratio = np.array([row["pruning_ratio"] for row in rows])
    assert np.all(np.diff(ratio) <= 1e-12) and ratio[0] > ratio[-1]


SEEDS = np.array([0.0, 0.001, -0.001])


@pytest.mark.parametrize(
    ("levels", "rising", "verdict"),
    [
        ([1.0, 2.0, 3.0], True, Verdict.HOLDS),
        ([1.0, 2.0, 3.0], False, Verdict.FAILS),
        ([1.0, 3.0, 2.0], True, Verdict.PARTLY),
        ([1.0, 1.0, 1.0], True, Verdict.SAME),
    ],
)
def test_trends_are_judged_by_their_ends_and_steps(levels, rising, verdict):
    arrays = [level + np.tile(np.roll(SEEDS, i), 3) for i, level in enumerate(levels)]
    assert judge_trend(["a", "b", "c"], arrays, rising=rising, delta=0.1, what="x").verdict is verdict


def test_seeds_that_agree_in_order_show_a_trend_though_their_sizes_differ():
    levels = [np.array([0.0, 0.0, 0.0]), np.array([0.1, 1.0, 5.0]), np.array([0.2, 2.0, 10.0])]
    assert judge_trend(["a", "b", "c"], levels, rising=True, delta=0.05, what="x").verdict is Verdict.HOLDS
    assert judge_trend(["a", "b", "c"], levels, rising=False, delta=0.05, what="x").verdict is Verdict.FAILS


def test_two_seeds_that_agree_on_three_levels_may_do_so_by_chance():
    """1 of 36 pairs of orders rises throughout and 1 falls: p = 1 / 18."""
    levels = [np.array([0.0, 0.0]), np.array([0.1, 5.0]), np.array([0.2, 10.0])]
    assert page_p([np.arange(3)] * 2) == pytest.approx(1 / 18)
    assert judge_trend(["a", "b", "c"], levels, rising=True, delta=0.05, what="x").verdict is Verdict.UNDECIDED


def test_agreement_in_order_has_scipys_exact_p():
    rng = np.random.default_rng(0)
    for num_levels, num_seeds in ((3, 2), (3, 5), (4, 3), (5, 4)):
        ranks = rng.permuted(np.tile(np.arange(num_levels), (num_seeds, 1)), axis=1)
        one_sided = [stats.page_trend_test(r + 1, ranked=True, method="exact").pvalue for r in (ranks, ranks[:, ::-1])]
        assert page_p(list(ranks)) == pytest.approx(min(1.0, 2 * min(one_sided)), rel=1e-9)


def test_seeds_that_disagree_cannot_decide():
    wide = np.array([-1.0, 0.1, 1.2])
    assert judge_trend(["a", "b"], [np.zeros(3), wide], rising=True, delta=0.1, what="x").verdict is Verdict.UNDECIDED
    assert judge_better(wide, np.zeros(3), delta=0.1, what="x", names=("a", "b")).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("difference", [0.0, 0.01, 0.5, -0.5])
def test_no_claim_about_runs_is_decided_on_one_seed(folder, tmp_path, difference):
    """Whatever the one seed shows: a series that prunes ends better, equal or worse."""
    for path in folder.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_rows(tmp_path / "fig4_target.csv", [r for r in read_rows(folder / "fig4_target.csv") if r["seed"] == 0])
    write_rows(
        tmp_path / "frozen_target.csv",
        [
            {**r, "series": {"flat": "frozen-pruning"}.get(r["series"], r["series"]), "preset": "p"}
            for r in read_rows(tmp_path / "fig4_target.csv")
        ],
    )
    for module in (fig2, fig3, fig4, fig5, fair, frozen):
        order = list(module.FIGURE.series)
        rows = made_up(module.FIGURE, lambda series, order=order: 0.5 + difference * order.index(series) / len(order))
        write_rows(tmp_path / f"{module.FIGURE.name}.csv", [row for row in rows if row["seed"] == 0])
    found = judged(tmp_path)
    about_runs = {claim.name for claim in CLAIMS if claim.by_preset}
    assert {row["claim"] for row in found if row["preset"]} == about_runs
    assert {row["verdict"] for row in found if row["preset"]} == {"cannot be decided"}
    assert all("one seed has no interval" in row["reason"] for row in found if row["claim"] in about_runs)
    assert {row["verdict"] for row in found if row["claim"].startswith("erratum")} == {"holds"}  # need no seeds


def test_a_target_that_one_seed_alone_reached_decides_nothing(tmp_path):
    write_times(tmp_path, optimal=(0.5, None, None), no_pruning=(1.0, None, None))
    assert verdicts(tmp_path)["optimal-reaches-target-sooner"] == "cannot be decided"


def test_a_sentence_of_two_statements_holds_in_part_if_one_does():
    yes = judge_better(1 + SEEDS, SEEDS[::-1], delta=0.1, what="x", names=("a", "b"))
    no = judge_better(SEEDS, 1 + SEEDS[::-1], delta=0.1, what="x", names=("a", "b"))
    assert combined([yes, yes]).verdict is Verdict.HOLDS
    assert combined([yes, no]).verdict is Verdict.PARTLY
    assert combined([no, no]).verdict is Verdict.FAILS


def test_the_verdict_on_fig_4_says_what_fair_shares_and_larger_rates_change(tmp_path):
    write_rows(tmp_path / "fig4.csv", made_up(fig4.FIGURE, lambda series: 0.76 if series == "no-pruning" else 0.7))
    alone = next(row for row in judged(tmp_path) if row["claim"] == "optimal-close-to-no-pruning")
    assert "fair shares" not in alone["reason"] and alone["reason"].startswith("Untuned: ") and alone["tuned"] is False
    write_rows(tmp_path / "fair.csv", made_up(fair.FIGURE, lambda series: 0.8 if series == "no-pruning" else 0.79))
    found = {row["claim"]: row for row in judged(tmp_path)}
    assert found["fair-shares-close-to-no-pruning"]["verdict"] == "holds"
    assert found["fair-shares-close-to-no-pruning"]["tuned"] is False
    assert "differ from no pruning by -1.0" in found["optimal-close-to-no-pruning"]["reason"]


def test_a_saving_at_the_edge_of_about_half_is_not_decided(tmp_path):
    rows = made_up(fig4.FIGURE, lambda series: 0.7)
    edged = [
        {**row, "time_s": (0.6 + 0.01 * (row["seed"] - 0.5)) if row["series"] == "optimal" else 1.0} for row in rows
    ]
    write_rows(tmp_path / "fig4.csv", edged)
    assert verdicts(tmp_path)["latency-halved"] == "cannot be decided"


def test_the_run_of_theorem_1_is_plain_sgd_and_leaves_no_weight_without_a_device(folder):
    (row, *_) = read_rows(folder / "bound.csv")
    assert not row["departures"]

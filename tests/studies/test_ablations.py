"""Ablations: the cells that are run, and what is said of their numbers."""

import json

import numpy as np
import pytest

from airprune.studies.league import ablations
from airprune.studies.league.ablations import (
    ABLATIONS,
    ADAPTIVE_BITS,
    ALL_MASKS,
    MASKS,
    PLANS,
    PRUNING,
    RATES,
    WEIGHTS,
)
from airprune.studies.league.league_run import Purpose
from support.league import BASE, run_of


class Store:
    """Every run is finished, with an accuracy made up from its scenario."""

    def __init__(self, accuracy, done=lambda run: True) -> None:
        self.accuracy, self.done = accuracy, done

    def finished(self, run):
        return run_of(0.2, self.accuracy(run.scenario)) if self.done(run) else None

    def has_failed(self, run) -> bool:
        return False


def test_the_whole_grid_of_plans_weights_and_rates_is_there_and_every_cell_once():
    names = [cell.name for cell in PRUNING.cells]
    assert len(set(names)) == len(names)
    grid = {f"{p}, {w}, rate {r:g}" for p in PLANS for w in WEIGHTS for r in RATES}
    assert grid <= set(names) and len(grid) == 16
    masks = {f"{p}, {m}, {w}, rate {r:g}" for p in PLANS for m in MASKS for w in WEIGHTS for r in RATES}
    assert masks == {cell.name for cell in ALL_MASKS.cells} and len(masks) == 48
    for ablation in ABLATIONS:
        runs = ablations.runs_by_cell(ablation, BASE, (0,))
        assert len({run.folder_name for (run,) in runs.values()}) == len(ablation.cells)
        assert {run.purpose for (run,) in runs.values()} == {Purpose.ABLATION}


@pytest.mark.parametrize("cell", [*PRUNING.cells, *ALL_MASKS.cells], ids=lambda cell: cell.name)
def test_cells_of_the_grid_differ_from_the_papers_in_the_named_factors_alone(cell):
    scenario, paper = BASE.with_values(cell.settings), BASE.with_("method", "adaptive-pruning")
    keys = {key for key, *_ in paper.diff(scenario)} - {"method", "name"}
    allowed = ("plan.scheme", "train.learning_rate", "masking", "aggregation.edge")
    assert all(key.startswith(allowed) for key in keys), keys


def test_each_part_of_adaptive_bits_is_switched_off():
    whole = BASE.with_("method", "adaptive-bits")
    by_part = {cell.part: BASE.with_values(cell.settings) for cell in ADAPTIVE_BITS.cells}
    assert not by_part["no error feedback"].to_dict()["compression"]["ladder"]["memory"]
    assert by_part["deadline of 30 ms"].plan.deadline_s == 0.03 and whole.plan.deadline_s == "auto"
    assert by_part["one level"].plan.scheme == "min-max-time"
    assert by_part["one level, equal shares"].plan.scheme == "no-pruning"


def test_missing_runs_are_asked_for_once():
    store = Store(lambda s: 0.5, done=lambda run: run.scenario.seed != 1)
    wanted = ablations.ablation_runs(BASE, store, (0, 1))
    assert {run.scenario.seed for run in wanted} == {1}
    of_all = {run.folder_name for a in ABLATIONS for (run,) in ablations.runs_by_cell(a, BASE, (1,)).values()}
    assert len(wanted) == len(of_all) and {run.folder_name for run in wanted} == of_all
    shared = sum(len(a.cells) for a in ABLATIONS) - len(of_all)
    assert shared == 16 + 4, "the paper's masks in the whole grid, and the others around two of its cells"


def _accuracy(scenario) -> float:
    """Fair shares gain 4 points, the higher rate 2; freezing loses 1, random masks 3; seeds differ by a tenth."""
    if scenario.plan.scheme == "no-pruning" and scenario.method == "adaptive-pruning":
        return 0.8 + 0.001 * scenario.seed
    gain = 0.04 if scenario.plan.scheme != "optimal" else 0.0
    gain += 0.02 if scenario.train.learning_rate == 0.1 else 0.0
    gain -= 0.01 if scenario.method == "frozen-pruning" else 0.0
    options = scenario.to_dict()["masking"].get(scenario.masking.name) or {}
    gain -= 0.03 if options.get("importance") == "random" else 0.0
    return 0.7 + gain + 0.001 * scenario.seed


def test_conclusions_have_the_differences_of_the_numbers():
    pruning, bits, masks = ablations.ablation_results(BASE, Store(_accuracy), (0, 1, 2))
    text = ablations.conclusion(pruning)
    assert "min-max +4.0 ± 0.0" in text and "freezing weights in place of zeroing them: -1.0 ± 0.0" in text
    assert "rate 0.1 in place of 0.03: +2.0 ± 0.0" in text and "no pruning by -4.0 ± 0.0" in text and "3 seeds" in text
    assert "no error feedback +" in ablations.conclusion(bits)
    text = ablations.conclusion(masks)
    assert "magnitude +0.0 ± 0.0" in text and "random -3.0 ± 0.0 (single combinations -3.0 to -3.0)" in text


def test_a_seed_that_a_cell_lacks_is_left_out_and_without_any_there_is_no_result():
    lacking = Store(_accuracy, done=lambda run: not (run.scenario.seed == 1 and run.scenario.plan.scheme == "variance"))
    pruning, bits, masks = ablations.ablation_results(BASE, lacking, (0, 1, 2))
    assert pruning.seeds == masks.seeds == (0, 2) and bits.seeds == (0, 1, 2)
    assert ablations.ablation_results(BASE, Store(_accuracy, done=lambda run: False)) == []


def test_an_ablation_is_plain_data_and_its_figure_has_a_point_per_cell():
    for found in ablations.ablation_results(BASE, Store(_accuracy), (0, 1)):
        data = json.loads(json.dumps(found.as_json(), allow_nan=False))
        assert len(data["cells"]) == len(found.ablation.cells) and data["conclusion"]
        (ax,) = ablations.figure(found).axes
        heights = [y for points in ax.containers for y in points.lines[0].get_ydata()]
        expected = [100 * found.accuracy(cell.name).mean() for cell in found.ablation.cells]
        assert sorted(heights) == pytest.approx(sorted(expected)) and np.isfinite(heights).all()

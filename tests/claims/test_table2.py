"""Table II with the defaults we infer, against the spreads of an independent calculation."""

import pytest

from airprune.studies.paper.table2 import ROWS, SCHEMES, paper_problem, table2


@pytest.fixture(scope="module")
def cells():
    return {(cell.topology, cell.scheme): cell for cell in table2(range(40))}


@pytest.mark.parametrize(
    ("topology", "scheme", "expected_ms", "spread_ms"),
    [
        ("HFL", "optimal", 30.0, 1e-6),
        ("HFL", "equal-reused", 46.0, 3.0),
        ("HFL", "no-pruning", 51.7, 0.6),
        ("non-HFL", "optimal", 350.0, 1e-6),
        ("non-HFL", "equal-reused", 593.0, 12.0),
        ("non-HFL", "no-pruning", 750.0, 8.0),
    ],
)
def test_table_2_latencies_lie_within_their_spread(cells, topology, scheme, expected_ms, spread_ms):
    assert cells[topology, scheme].mean_ms == pytest.approx(expected_ms, abs=spread_ms)


def test_every_cell_is_within_five_per_cent_of_the_paper(cells):
    assert len(cells) == len(ROWS) * len(SCHEMES)
    for cell in cells.values():
        assert abs(cell.deviation) <= 0.05


def test_the_paper_has_five_devices_on_each_of_five_bands_or_all_on_one():
    hierarchical, flat = (paper_problem(row, seed=0) for row in ROWS)
    assert list(hierarchical.groups.counts) == [5] * 5
    assert list(flat.groups.counts) == [25]

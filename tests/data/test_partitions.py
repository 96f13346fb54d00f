"""Who holds which samples: what every partition keeps to, and what each kind promises."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from airprune.data import PARTITIONS, partition, partition_table
from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.results.figures.partition import draw_partition

KINDS = [kind for kind in PARTITIONS if kind != "natural"]  # which is by owner, not by class
PAPER_EDGES = np.repeat(np.arange(5), 5)
LABELS = np.random.default_rng(0).permutation(np.arange(6_000) % 10)


def table_of(kind: str, *, labels=LABELS, edge=PAPER_EDGES, seed=0, **options) -> np.ndarray:
    return partition_table(labels, partition(labels, edge=edge, kind=kind, seed=seed, **options), 10)


@st.composite
def requests(draw):
    """Plenty of samples per device and class, so that a partition exists."""
    num_devices, num_classes = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    edge = draw(st.lists(st.integers(0, 4), min_size=num_devices, max_size=num_devices))
    per_class = draw(st.lists(st.integers(1, 4), min_size=num_classes, max_size=num_classes))
    labels = np.repeat(np.arange(num_classes), np.array(per_class) * 8 * num_devices)
    options = {
        "kind": draw(st.sampled_from(KINDS)),
        "seed": draw(st.integers(0, 2**32)),
        "classes_per_device": draw(st.integers(1, num_classes)),
        "alpha": draw(st.floats(1e-6, 1e3)),
        "size_spread": draw(st.sampled_from([0.0, 0.5])),
    }
    return labels, np.array(edge), options


@given(requests())
def test_no_sample_is_used_twice_and_nobody_is_left_empty(request):
    labels, edge, options = request
    parts = partition(labels, edge=edge, **options)
    assert len(parts) == len(edge) and all(len(part) for part in parts)
    used = np.concatenate(parts)
    assert len(np.unique(used)) == len(used)
    assert used.min() >= 0 and used.max() < len(labels)
    assert all(np.all(np.diff(part) > 0) for part in parts)


@given(requests())
def test_at_most_one_sample_per_device_and_edge_is_left_over(request):
    """…of the classes that somebody holds; rounding down is what leaves them."""
    labels, edge, options = request
    held = partition_table(labels, partition(labels, edge=edge, **options), 6).sum(axis=0)
    supply = np.bincount(labels, minlength=6)
    if options["kind"] != "shards":
        assert np.all((held > 0) == (supply > 0))
    assert supply[held > 0].sum() - held.sum() <= len(edge) + len(np.unique(edge))


@given(requests())
def test_the_same_seed_gives_the_same_partition(request):
    labels, edge, options = request
    for part, again in zip(
        partition(labels, edge=edge, **options), partition(labels, edge=edge, **options), strict=True
    ):
        np.testing.assert_array_equal(part, again)


@given(requests())
def test_names_of_edges_and_classes_do_not_matter(request):
    labels, edge, options = request
    parts = partition(labels, edge=edge, **options)
    renamed = partition(labels * 3 + 2, edge=edge * 10 + 1, **options)
    for part, again in zip(parts, renamed, strict=True):
        np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(kind):
    assert not np.array_equal(
        np.concatenate(partition(LABELS, edge=PAPER_EDGES, kind=kind, seed=0)),
        np.concatenate(partition(LABELS, edge=PAPER_EDGES, kind=kind, seed=1)),
    )


@given(st.integers(1, 40), st.integers(40, 400), st.sampled_from(["iid", "dirichlet"]))
def test_equal_sizes_are_the_floor_of_samples_per_device(num_devices, num_samples, kind):
    parts = partition(np.arange(num_samples) % 10, edge=np.zeros(num_devices, dtype=int), kind=kind, seed=0)
    assert {len(part) for part in parts} == {num_samples // num_devices}


def test_iid_devices_hold_every_class_about_equally():
    share = table_of("iid") / 240
    assert np.abs(share - 0.1).max() < 0.1  # 240 draws at 0.1: five standard deviations are 0.097


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_shards_give_each_device_so_many_classes_and_equal_sizes(classes):
    table = table_of("shards", classes_per_device=classes, edge=np.repeat(np.arange(5), 4))
    assert np.all((table > 0).sum(axis=1) == classes)
    np.testing.assert_array_equal(table.sum(axis=1), 300)  # 20 devices, 10 even classes: it divides


def test_shards_leave_no_class_out_if_there_are_devices_enough():
    table = table_of("shards", classes_per_device=2, edge=np.zeros(5, dtype=int))
    assert np.all(table.sum(axis=0) > 0)


def test_small_alpha_gives_one_main_class_and_large_alpha_an_even_mix():
    main_share = {alpha: np.median(table_of("dirichlet", alpha=alpha).max(axis=1) / 240) for alpha in (0.01, 0.5, 1e4)}
    assert main_share[0.01] > 0.9 > main_share[0.5] > 0.3
    assert main_share[1e4] < 0.13


def test_dirichlet_mixes_spread_as_dirichlet_says():
    """Var of a share under Dirichlet(α) over C even classes is (1/C)(1 - 1/C)/(αC + 1)."""
    labels = np.arange(100_000) % 10
    for alpha in (0.3, 1.0, 5.0):
        share = table_of("dirichlet", labels=labels, edge=np.zeros(200, dtype=int), alpha=alpha) / 500
        # 2,000 shares drawn around what is left, which drifts: within a fifth.
        assert share.var() == pytest.approx(0.09 / (10 * alpha + 1), rel=0.2)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_the_share_of_a_class_follows_the_beta_marginal_of_dirichlet(alpha):
    """A share of Dirichlet(α) over C classes is Beta(α, (C − 1) α)."""
    labels, num_devices, size = np.arange(400_000) % 10, 200, 2_000
    table = table_of("dirichlet", labels=labels, edge=np.zeros(num_devices, dtype=int), alpha=alpha)
    assert np.all(table.sum(axis=1) == size) and np.all(table.sum(axis=0) == 40_000)  # every sample is used once
    share = table / size
    middle = stats.beta(alpha, 9 * alpha).cdf(0.1)
    # 2,000 dependent shares of 200 mixes: three binomial deviations of 200 are 0.1.
    assert np.mean(share <= 0.1) == pytest.approx(middle, abs=0.05)
    assert np.mean(share > 0.5) == pytest.approx(stats.beta(alpha, 9 * alpha).sf(0.5), abs=0.03)


def test_edge_iid_edges_are_even_and_their_devices_are_not():
    table = table_of("edge-iid")
    edges = np.add.reduceat(table, np.arange(0, 25, 5))
    assert np.abs(edges / edges.sum(axis=1, keepdims=True) - 0.1).max() < 0.05  # 1,200 draws: five deviations are 0.043
    assert np.all((table > 0).sum(axis=1) == 2)


def test_edge_iid_edges_stay_even_when_they_have_few_devices():
    table = table_of("edge-iid", edge=[0, 0, 0, 1])
    assert np.all(np.add.reduceat(table, [0, 3]) > 0)
    assert (table > 0).sum(axis=1).tolist() == [4, 4, 4, 10]


def test_edge_non_iid_edges_are_skewed_and_their_devices_alike():
    table = table_of("edge-non-iid")
    for k in range(5):
        mine = table[5 * k : 5 * k + 5]
        assert np.all((mine > 0).sum(axis=1) == 2)
        share = mine / mine.sum(axis=1, keepdims=True)
        assert np.ptp(share, axis=0).max() < 0.25  # 240 draws at a half: a deviation is 0.03
    assert np.all(table.sum(axis=0) > 0)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_sizes_spread_log_normally(kind):
    size = table_of(kind, labels=np.arange(60_000) % 10, edge=np.zeros(300, dtype=int), size_spread=0.8).sum(axis=1)
    assert np.log(size).std() == pytest.approx(0.8, rel=0.15)  # 300 draws: three deviations are 12 %


def test_thousands_of_devices_are_served():
    labels = np.arange(20_000) % 10
    for kind in KINDS:
        parts = partition(labels, edge=np.arange(4_000) // 80, kind=kind, seed=0)
        assert min(map(len, parts)) >= 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": np.arange(24)}, "partition.labels must have a sample for each of 25 devices, got 24"),
        ({"labels": np.zeros((4, 4), dtype=int)}, "partition.labels must be a non-empty vector"),
        ({"labels": np.linspace(0, 1, 100)}, "partition.labels must be a non-empty vector of whole numbers"),
        ({"edge": []}, "partition.edge must be a non-empty vector"),
        ({"edge": [-1, 0]}, "partition.edge must be ≥ 0, got -1"),
        ({"classes_per_device": 11}, "partition.classes_per_device must be ≤ 10, the classes there are, got 11"),
        ({"classes_per_device": 0}, "partition.classes_per_device must be a whole number ≥ 1"),
        ({"alpha": 0.0}, "partition.alpha must be > 0"),
        ({"size_spread": -0.1}, r"partition.size_spread must be in \[0, 10\]"),
    ],
)
def test_wrong_requests_are_refused_in_a_sentence(changes, sentence):
    request = {"labels": LABELS, "edge": PAPER_EDGES, "kind": "shards", "seed": 0, **changes}
    with pytest.raises(InvalidValue, match=sentence):
        partition(request.pop("labels"), **request)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'dirichlet'"):
        partition(LABELS, edge=PAPER_EDGES, kind="dirichlett", seed=0)


def test_a_device_that_would_stay_empty_is_an_error():
    labels = np.array([0] * 100 + [1])  # one sample of class 1, and five devices that may hold nothing else
    with pytest.raises(InvalidValue, match=r"none for \d+ of 10 devices.*fewer devices"):
        partition(labels, edge=np.zeros(10, dtype=int), kind="shards", seed=0, classes_per_device=1)


@given(requests())
def test_table_counts_what_the_parts_hold(request):
    labels, edge, options = request
    assume(len(edge) > 1)
    parts = partition(labels, edge=edge, **options)
    table = partition_table(labels, parts, 7)
    assert table.shape == (len(edge), 7)
    np.testing.assert_array_equal(table.sum(axis=1), [len(part) for part in parts])


@pytest.mark.parametrize("num_devices", [1, 25, 500])
def test_picture_has_one_bar_per_device_and_class_held(num_devices, tmp_path):
    edge = np.arange(num_devices) // 5
    table = table_of("dirichlet", edge=edge)
    path = tmp_path / "partition.png"
    figure = draw_partition(table, edge, path)
    bars = sum(len(collection.get_paths()) for collection in figure.axes[0].collections)
    assert bars == np.count_nonzero(table)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_pictures_leave_no_figure_behind_in_pyplot():
    from matplotlib import pyplot

    draw_partition(table_of("iid"), PAPER_EDGES)
    assert pyplot.get_fignums() == []


def test_a_picture_of_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be drawn"):
        draw_partition(table_of("iid"), PAPER_EDGES, tmp_path / "partition.docx")

"""Lists the data sets by name. To add one, write its file with an ENTRY and list it here."""

from __future__ import annotations

from pathlib import Path

from airprune.checks import whole_number
from airprune.components.registry import Registry
from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, LoadOptions
from airprune.errors import InvalidValue, WorkFailed

DATASETS: Registry[DatasetEntry] = Registry(
    "datasets",
    {
        "mnist": "airprune.data.mnist:ENTRY",
        "fashion-mnist": "airprune.data.fashion_mnist:ENTRY",
        "cifar-10": "airprune.data.cifar10:ENTRY",
        "glyphs": "airprune.data.glyphs:ENTRY",
        "shakespeare": "airprune.data.shakespeare:ENTRY",
    },
)


def dataset_named(name: str) -> DatasetEntry:
    if name not in DATASETS:
        raise DATASETS.unknown(name, "dataset")
    return DATASETS[name]


def load_dataset(
    name: str,
    *,
    data_dir: Path | str | None = None,
    train_samples: int | None = None,
    test_samples: int | None = None,
    judge_on: str = "test",
    seed: int = 0,
    owners: int | None = None,
    min_owner_samples: int = 1,
) -> Dataset:
    """Reads, fetches or generates a data set.

    Args:
      data_dir: folder that is searched first, and keeps fetched files.
      train_samples, test_samples: a subset: the first samples of a shuffle by `seed`.
      judge_on: "test", or "held-out": the training samples after the first `train_samples` take the place of the test
        samples, which are not read. For choices that must not see the test set.
      seed: of the subset; for glyphs, of the images.
      owners: so many owners, sampled by `seed` among those with at least `min_owner_samples` training samples; None for
        all of these. For data sets whose samples have owners.
    """
    entry = dataset_named(name)
    whole_number("load_dataset.seed", seed)
    whole_number("load_dataset.min_owner_samples", min_owner_samples, at_least=1)
    if owners is not None:
        whole_number("load_dataset.owners", owners, at_least=1)
    if not entry.has_owners and (owners is not None or min_owner_samples > 1):
        field, got = ("owners", owners) if owners is not None else ("min_owner_samples", min_owner_samples)
        known = ", ".join(one.name for one in DATASETS.values() if one.has_owners)
        raise InvalidValue(f"load_dataset.{field}", f"must be left out for {name}, which has no owners", got, known)
    if judge_on == "held-out":
        size = test_samples or entry.num_test
        return _held_out(entry, data_dir, train_samples, size, seed, owners, min_owner_samples)
    for field, wanted, available in (
        ("train_samples", train_samples, entry.max_train),
        ("test_samples", test_samples, entry.max_test),
    ):
        if wanted is not None and whole_number(f"load_dataset.{field}", wanted, at_least=1) > available:
            raise InvalidValue(f"load_dataset.{field}", f"must be ≤ {available:,}, all that {name} has", f"{wanted:,}")
    folder = None if data_dir is None else Path(data_dir)
    options = LoadOptions(
        data_dir=folder,
        train_samples=train_samples,
        test_samples=test_samples,
        seed=seed,
        owners=owners,
        min_owner_samples=min_owner_samples,
    )
    try:
        return entry.load(options)
    except MemoryError as error:
        raise WorkFailed(f"Data set {name!r} does not fit into memory; use fewer train_samples.") from error


def _held_out(
    entry: DatasetEntry,
    data_dir: Path | str | None,
    train_samples: int | None,
    num_held_out: int,
    seed: int,
    owners: int | None,
    min_owner_samples: int,
) -> Dataset:
    """Splits a training subset: a smaller one is part of a larger, so its first samples are those without held-out."""
    if train_samples is None or train_samples + num_held_out > entry.max_train:
        got = "all of them" if train_samples is None else f"{train_samples:,}"
        rule = f"must leave {num_held_out:,} of {entry.max_train:,} training samples of {entry.name} to be held out"
        raise InvalidValue("load_dataset.train_samples", rule, got, "Train on fewer, or set fewer test_samples")
    both = load_dataset(
        entry.name,
        data_dir=data_dir,
        train_samples=train_samples + num_held_out,
        test_samples=1,
        seed=seed,
        owners=owners,
        min_owner_samples=min_owner_samples,
    )
    owner = both.train_owner
    return Dataset(
        name=both.name,
        train_x=both.train_x[:train_samples],
        train_y=both.train_y[:train_samples],
        test_x=both.train_x[train_samples:],
        test_y=both.train_y[train_samples:],
        num_classes=both.num_classes,
        train_owner=None if owner is None else owner[:train_samples],
        test_owner=None if owner is None else owner[train_samples:],
    )


def fetch_dataset(name: str, *, data_dir: Path | str | None = None) -> tuple[Path | None, str]:
    """Fetches a data set's verified files; returns (their folder, None if it has no files; the source)."""
    entry = dataset_named(name)
    if entry.fetch is None:
        return None, "generated when needed"
    return entry.fetch(None if data_dir is None else Path(data_dir))

"""The datasets by name. To add one, write its file with an ENTRY and list it here."""

from __future__ import annotations

from pathlib import Path

from airprune.checks import whole_number
from airprune.data import fashion_mnist, glyphs, mnist
from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, LoadOptions
from airprune.errors import InvalidValue, UnknownName, WorkFailed

DATASETS: dict[str, DatasetEntry] = {module.ENTRY.name: module.ENTRY for module in (mnist, fashion_mnist, glyphs)}


def dataset_named(name: str) -> DatasetEntry:
    if name not in DATASETS:
        raise UnknownName("dataset", name, DATASETS)
    return DATASETS[name]


def load_dataset(
    name: str,
    *,
    data_dir: Path | str | None = None,
    train_samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Reads, fetches or draws a dataset.

    Args:
      data_dir: where to look first, and to keep what is fetched.
      train_samples, test_samples: fewer than there are: the first of a shuffle by `seed`.
      seed: of the subset; for glyphs, of the drawing.
    """
    entry = dataset_named(name)
    whole_number("load_dataset.seed", seed)
    for field, wanted, available in (
        ("train_samples", train_samples, entry.max_train),
        ("test_samples", test_samples, entry.max_test),
    ):
        if wanted is not None and whole_number(f"load_dataset.{field}", wanted, at_least=1) > available:
            raise InvalidValue(f"load_dataset.{field}", f"must be ≤ {available:,}, all that {name} has", f"{wanted:,}")
    folder = None if data_dir is None else Path(data_dir)
    options = LoadOptions(data_dir=folder, train_samples=train_samples, test_samples=test_samples, seed=seed)
    try:
        return entry.load(options)
    except MemoryError as error:
        raise WorkFailed(f"Dataset {name!r} does not fit into memory; ask for fewer train_samples.") from error


def fetch_dataset(name: str, *, data_dir: Path | str | None = None) -> tuple[Path | None, str]:
    """Brings a dataset's verified files to this machine: where they are, None if it has none, and the way they came."""
    entry = dataset_named(name)
    if entry.fetch is None:
        return None, "drawn when needed"
    return entry.fetch(None if data_dir is None else Path(data_dir))

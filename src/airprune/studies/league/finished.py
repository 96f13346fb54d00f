"""The measurements of a finished run: its tests, its traffic, and statistics of its rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from airprune.results.time_to_target import FIELDS, Evaluation, evaluations
from airprune.results.traffic import LinkBits, link_bits_by_round
from airprune.rounds.records import EdgeRecord, GlobalRecord, Record
from airprune.runs.layout import RunFolder

_STATISTICS_FIELDS = frozenset({"pruning_ratio", "fate", "deadline_s", "downlink_s", "coverage", "device_accuracy"})
_LINK_FIELDS = frozenset({"level", "node", "d2d_bits", "backhaul_bits", "downlink_bits"})
# All links together, as `tests_by` names them.
ALL_LINKS = "all"


@dataclass(frozen=True, kw_only=True)
class RunStatistics:
    """Statistics of the rounds of a run; NaN where nothing was recorded.

    Attributes:
      mean_ratio, max_ratio: ρ of the devices that took part.
      late_share: share of edge rounds that took longer than the deadline, without the downlink.
      min_count: Γ*, the fewest devices that kept a weight which any device kept, in any round.
      uncovered: number of weights that no device kept, mean over edge rounds.
      device_accuracy: accuracy of the part of the last cloud model that the median device holds.
    """

    mean_ratio: float
    max_ratio: float
    late_share: float
    min_count: float
    uncovered: float
    device_accuracy: float = math.nan


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """Every test of the cloud models of one finished run, and its statistics. The names are keys of the ledger.

    Attributes:
      links: bits since the start, by link and global round; downlinks only where they were charged.
    """

    tests: tuple[Evaluation, ...]
    conduct: RunStatistics
    links: Mapping[int, LinkBits] = field(default_factory=dict)

    def tests_by(self, link: str) -> list[Evaluation]:
        """Returns the tests with the bits of one kind of link, or of all, in place of uploaded ones; None: unknown."""
        return [replace(test, uploaded_bits=self._bits(test, link)) for test in self.tests]

    def _bits(self, test: Evaluation, link: str) -> float | None:
        found = self.links.get(test.global_round)
        if found is None:
            return None
        return math.fsum(asdict(found).values()) if link == ALL_LINKS else getattr(found, link, None)

    @property
    def has_diverged(self) -> bool:
        """True if the last cloud model has no accuracy, since its weights are not finite numbers."""
        return bool(self.tests) and math.isnan(self.tests[-1].test_accuracy)

    @property
    def accuracy(self) -> float:
        """Accuracy of the last cloud model; NaN if none was tested, or training diverged."""
        return self.tests[-1].test_accuracy if self.tests else math.nan

    def accuracy_by(self, time_s: float) -> float:
        """Returns the accuracy of the last cloud model by that time, without interpolation; NaN if there was none."""
        there = [test for test in self.tests if test.time_s is not None and test.time_s <= time_s * (1.0 + 1e-9)]
        return there[-1].test_accuracy if there else math.nan

    def has_room_by(self, time_s: float) -> bool:
        """True if another global round, as long as the others, would have ended by then."""
        last = self.tests[-1].time_s if self.tests and not self.has_diverged else None
        return last is not None and last * (1.0 + 1.0 / len(self.tests)) <= time_s * (1.0 + 1e-9)


def read_finished(
    folder: RunFolder, *, deadline_s: float, model_bits: float | None = None, has_backhaul: bool = True
) -> FinishedRun:
    """Reads the measurements of a run; damaged lines of its records are skipped.

    Args:
      deadline_s: the scenario's; a round that chose its own deadline is compared with that one.
      model_bits: size of a whole model between edges and cloud; None: bits are not separated by link.
      has_backhaul: True if there is a link between edges and cloud.
    """
    records, _ = folder.reader.read(only=FIELDS | _STATISTICS_FIELDS | _LINK_FIELDS)
    tests = tuple(test for test in evaluations(records) if test.edge_round is None)
    links = {} if model_bits is None else link_bits_by_round(records, model_bits=model_bits, has_backhaul=has_backhaul)
    return FinishedRun(tests=tests, conduct=statistics_of(records, deadline_s=deadline_s), links=links)


def statistics_of(records: Iterable[Record], *, deadline_s: float) -> RunStatistics:
    """Returns the statistics of the rounds in these records."""
    ratios: list[float] = []
    late: list[bool] = []
    counts: list[float] = []
    uncovered: list[float] = []
    device_accuracy = math.nan
    for record in records:
        if isinstance(record, GlobalRecord) and record.device_accuracy is not None:
            device_accuracy = record.device_accuracy
        if not isinstance(record, EdgeRecord):
            continue
        pairs = zip(record.pruning_ratio, record.fate, strict=False)
        ratios += [ratio for ratio, fate in pairs if fate == "ok" and ratio is not None]
        limit_s = (record.deadline_s or deadline_s) * (1.0 + 1e-9)
        down_s = record.downlink_s or (None,) * len(record.edge_latency_s)
        pairs_s = zip(record.edge_latency_s, down_s, strict=True)
        late += [latency_s - (before_s or 0.0) > limit_s for latency_s, before_s in pairs_s if latency_s is not None]
        counts += [edge.min_count for edge in record.coverage]
        uncovered += [edge.num_uncovered for edge in record.coverage]
    return RunStatistics(
        mean_ratio=_mean(ratios),
        max_ratio=max(ratios, default=math.nan),
        late_share=_mean(late),
        min_count=float(min(counts, default=math.nan)),
        uncovered=_mean(uncovered),
        device_accuracy=device_accuracy,
    )


def over_seeds(found: Sequence[RunStatistics]) -> RunStatistics:
    """Returns means over seeds; for Γ* the minimum, for the largest ratio the maximum."""
    return RunStatistics(
        mean_ratio=_mean([one.mean_ratio for one in found]),
        max_ratio=max((one.max_ratio for one in found), default=math.nan),
        late_share=_mean([one.late_share for one in found]),
        min_count=min((one.min_count for one in found), default=math.nan),
        uncovered=_mean([one.uncovered for one in found]),
        device_accuracy=_mean([one.device_accuracy for one in found]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan

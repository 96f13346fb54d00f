"""Follows the files of a deployed run as they grow: outcomes and times of uploads, and the speeds that plans had.

Bounded: of each device the last `MAX_RECENT` uploads are kept, of at most `MAX_DEVICES` devices; counts are of all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from airprune.deployment.calibration import Spread, full_band_rate_bps
from airprune.deployment.fleet.registry import Totals
from airprune.runs.followed import Followed
from airprune.runs.lines import json_object
from airprune.runs.measured import FATES, MeasuredRow, MeasuredTime, inputs_in, row_in

MAX_DEVICES = 10_000
MAX_RECENT = 50
MAX_TEXT = 80
OTHER = "other"


@dataclass(eq=False)
class DeviceUploads:
    """The uploads of one device.

    Attributes:
      fates: of all of them.
      last: the last one.
      recent: the last `MAX_RECENT`.
    """

    fates: Counter[str] = field(default_factory=Counter)
    last: MeasuredRow | None = None
    recent: deque[MeasuredRow] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))

    def add(self, row: MeasuredRow, fate: str) -> None:
        self.fates[fate] += 1
        self.last = row
        self.recent.append(row)

    @property
    def rate_bps(self) -> Spread | None:
        """Uplink rate with the whole bandwidth."""
        return Spread.of(map(full_band_rate_bps, self.recent))

    def spread(self, name: str) -> Spread | None:
        """Returns the spread of a field or property of its rows."""
        return Spread.of(getattr(row, name) for row in self.recent)


class UploadsFile(Followed):
    """Follows a run's measured.jsonl.

    Attributes:
      devices: the first `MAX_DEVICES` of them, by name.
      fates: of all uploads; those that airprune does not know count as `OTHER`.
      num_rounds: edge rounds with uploads.
      num_bytes_sent: of uploads that were received.
      time: of all edge rounds.
      num_spoilt: lines that are no row.
    """

    max_bytes_at_once = 16 * 2**20  # about a second

    def clear(self) -> None:
        self.devices: dict[str, DeviceUploads] = {}
        self.fates: Counter[str] = Counter()
        self.num_rounds = self.num_bytes_sent = self.num_spoilt = 0
        self.time = MeasuredTime()
        self._round: int | None = None

    def is_whole(self, line: bytes) -> bool:
        return row_in(line) is not None

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        row = None if is_long else row_in(line)
        if row is None:
            self.num_spoilt += 1
            return
        name = clipped(str(row.device) if row.name is None else row.name)
        fate = row.fate if row.fate in FATES else OTHER
        self.fates[fate] += 1
        self.num_rounds += row.round != self._round
        self._round = row.round
        self.num_bytes_sent += row.bytes or 0
        self.time.add(row)
        if name in self.devices or len(self.devices) < MAX_DEVICES:
            self.devices.setdefault(name, DeviceUploads()).add(row, fate)
        self.note(row, name, fate)

    def note(self, row: MeasuredRow, name: str, fate: str) -> None:
        """Does nothing; for a subclass that keeps more of a row."""

    def refresh_all(self) -> None:
        """Reads the file to its end, however large it is."""
        self.refresh()
        while self.num_bytes_read < self.num_bytes and not self.has_tail:
            self.refresh()

    @property
    def totals(self) -> Totals:
        return Totals(edge_rounds=self.num_rounds, uploads=dict(self.fates), upload_bytes=self.num_bytes_sent)


class SpeedsFile(Followed):
    """Follows a run's inputs.jsonl: the seconds per sample that recent rounds were planned with.

    Attributes:
      planned_s: by edge round and device, of the last `4 * MAX_RECENT` rounds.
    """

    max_bytes_at_once = 16 * 2**20

    def clear(self) -> None:
        self.planned_s: OrderedDict[int, dict[int, float]] = OrderedDict()

    def is_whole(self, line: bytes) -> bool:
        return json_object(line) is not None

    def take(self, line: bytes, place: int, *, is_long: bool) -> None:
        inputs = None if is_long else inputs_in(line)
        if inputs is None or inputs.seconds_per_sample is None:
            return
        known = zip(inputs.device, inputs.seconds_per_sample, strict=True)
        self.planned_s[inputs.round] = {device: seconds for device, seconds in known if seconds is not None}
        while len(self.planned_s) > 4 * MAX_RECENT:
            self.planned_s.popitem(last=False)

    def seconds_per_sample(self, uploads: DeviceUploads) -> Spread | None:
        """Returns how long a device trains on a sample of the whole model: as planned, times measured over planned."""
        pairs = ((self.planned_s.get(row.round, {}).get(row.device), row.compute_ratio) for row in uploads.recent)
        return Spread.of(None if known is None or ratio is None else known * ratio for known, ratio in pairs)


def clipped(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"

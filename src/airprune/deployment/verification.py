"""Repeats the sums of edges from the uploads that they kept, and compares them with the cloud's records.

No training is repeated, so any machine can verify any other: the sums of Eq. (12) are plain additions in a fixed order,
the same on every CPU. An edge cannot have exchanged orders, uploads or its model without being found: the cloud's
records have the digest of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from airprune.deployment.about import read_about
from airprune.deployment.digests import digest_of
from airprune.deployment.edge_sums import OrderedRound, closed_round
from airprune.deployment.kept_rounds import KeptRound, kept_folder, kept_place
from airprune.deployment.packing import order_digest
from airprune.deployment.round_machine import Outcome, OutcomeKind, RoundKey
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.uploads import BadUpload
from airprune.errors import UnknownName, UsageError, WorkFailed
from airprune.rounds.messages import Broadcast
from airprune.rounds.wire import broadcast_to_bytes
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, read_measured


@dataclass(frozen=True, kw_only=True)
class VerifiedRound:
    """One edge round of one edge.

    Attributes:
      global_round, edge_round: as records count them, from 1.
      num_uploads: that counted.
      is_out: the edge was out of the global round; nothing of it counted, so nothing is to be verified.
      differences: sentences; none if the round is what the records say.
    """

    edge: str
    global_round: int
    edge_round: int
    num_uploads: int
    is_out: bool
    differences: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return "differs" if self.differences else "out" if self.is_out else "verified"


def edges_of(folder: RunFolder) -> list[str]:
    """Names of the edges that took part in a run."""
    return sorted({row.served_by for row in read_measured(folder) if row.served_by is not None})


def verified_rounds(folder: RunFolder, kept: Mapping[str, Path]) -> Iterator[VerifiedRound]:
    """Yields all edge rounds of these edges, in the order in which they happened.

    Args:
      kept: by name of an edge, its kit or the folder in which it keeps its state.
    """
    about = read_about(folder)
    run, work = about["run"], _definition(folder, about)
    known, places = edges_of(folder), dict[str, Path]()
    for name, place in kept.items():
        if name not in known:
            raise UnknownName("edge", name, known)
        places[name] = _state_folder(place, run)
    rows = [row for row in read_measured(folder) if row.served_by in places]
    rows.sort(key=lambda row: (row.round, row.edge))
    for (global_round, edge_round, edge), of_edge in groupby(
        rows, key=lambda row: (row.global_round, row.edge_round, str(row.served_by))
    ):
        selected = list(of_edge)
        is_out = bool(selected[0].edge_out)
        place = kept_place(places[edge], RoundKey(run, global_round - 1, edge_round - 1))
        yield VerifiedRound(
            edge=edge,
            global_round=global_round,
            edge_round=edge_round,
            num_uploads=sum(row.fate == OutcomeKind.OK for row in selected),
            is_out=is_out,
            differences=() if is_out else tuple(_differences(place, selected, work)),
        )


def _differences(place: Path, rows: Sequence[MeasuredRow], work: RunDefinition) -> Iterator[str]:
    try:
        kept = KeptRound.load(place)
    except WorkFailed as missing:
        yield str(missing)
        return
    if order_digest(kept.orders, kept.arrays) != rows[0].orders_digest:
        yield "Its orders are not those that the cloud sent to this edge."
        return
    station = kept.arrays.station
    if station is None or station.digest != kept.orders.model_digest:
        yield "The model that it began with is not the one of its orders."
        return
    wrong = list(_wrong_uploads(kept, rows))
    yield from wrong
    if wrong:
        return
    broadcast = Broadcast(model=station.model, mask=kept.arrays.mask, values=kept.arrays.values)
    digest = digest_of(broadcast_to_bytes(broadcast)).hex()
    ordered = OrderedRound(work=work, round=kept.orders, broadcast=broadcast, model_digest=digest)
    outcomes = {row.device: Outcome(device=row.device, fate=OutcomeKind(row.fate)) for row in rows}
    try:
        _, after = closed_round(ordered, kept.uploads, outcomes, station, kept.opening)
    except KeyError:
        yield "The shares that were revealed do not give back what opens the sum."
        return
    except BadUpload as bad:
        yield f"An upload should not have counted: {bad}"
        return
    if (model := after.digest) != rows[0].model_digest:
        yield f"The uploads make another model, {model}, than the edge had, {rows[0].model_digest}."


def _wrong_uploads(kept: KeptRound, rows: Sequence[MeasuredRow]) -> Iterator[str]:
    counted = {row.device: row for row in rows if row.fate == OutcomeKind.OK}
    for device, row in counted.items():
        name = row.name or f"device {device}"
        if device not in kept.uploads:
            yield f"The upload of {name} is missing."
        elif digest_of(kept.uploads[device]).hex() != row.digest:
            yield f"The upload of {name} is not the one that counted."
    for device in kept.uploads.keys() - counted.keys():
        yield f"An upload of device {device} is there, which did not count."


def _definition(folder: RunFolder, about: Mapping[str, object]) -> RunDefinition:
    try:
        return RunDefinition(scenario=folder.scenario(), **about["model"])  # type: ignore[arg-type]
    except (KeyError, TypeError):
        raise WorkFailed(f"{folder.path} does not say which model it trains; it is of an older version.") from None


def _state_folder(place: Path, run: str) -> Path:
    for folder in (place, place / "state"):
        if kept_folder(folder, run).is_dir():
            return folder
    raise UsageError(
        f"{place} has no uploads of run {run}; give the folder of an edge that was started with --keep-uploads."
    )

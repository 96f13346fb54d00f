"""`run`: an unmodified Flower app on the network of a scenario, from its first round or from where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.checks import path_of
from airprune.engines import check_engine
from airprune.errors import AirpruneError, InvalidValue, UsageError, WorkFailed, trouble_of
from airprune.flower.app import FlowerApp, identify, importable, load, need_flower
from airprune.flower.counting import RULES, Rule, at_hz
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder
from airprune.runs.lock import Lock, locked
from airprune.runs.writer import RunWriter
from airprune.scenario import Scenario

Record = dict[str, Any]

# How long Flower's strategies wait for replies, unless the app says otherwise.
FLOWER_TIMEOUT_S = 3600.0


def default_scenario() -> Scenario:
    """Returns the scenario of apps that are given none: the paper's network and radio, no edges, Flower's timeout."""
    return Scenario().with_values(
        {
            "method": "fedavg",
            "plan.deadline_s": FLOWER_TIMEOUT_S,
            "rounds.edge_rounds": 1,
            "train.local_epochs": 1,
        }
    )


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run of an app that has ended.

    Attributes:
      records: one for every exchange and every global round.
      arrays: the server's last model.
      compute_from: the rules that compute times followed; `RULES` describes them.
      folder: of the run; None if there is none.
    """

    app: FlowerApp
    scenario: Scenario
    records: list[Record]
    arrays: dict[str, np.ndarray] = field(repr=False)
    compute_from: tuple[str, ...]
    folder: Path | None


def scenario_of(
    app: FlowerApp, scenario: Scenario | None = None, *, edges: int | None = None, devices: int | None = None
) -> Scenario:
    """Returns the scenario in which an app runs: with as many devices as it has clients.

    Args:
      edges: number of edges, each with the app's strategy; 0: none; None: as the scenario's topology has it.
      devices: number of clients, in place of the app's `num-supernodes`.
    """
    scenario = default_scenario() if scenario is None else scenario
    if edges is not None and edges < 0:
        raise InvalidValue("flower.edges", "must be ≥ 0", edges)
    if edges is not None:
        scenario = scenario.with_("topology.name", "hierarchical" if edges else "flat")
    labels = {"name": app.name, "model.name": app.name, "data.name": app.name}
    if scenario.network.table is not None:
        on_edges = scenario.with_("topology.name", "hierarchical")
        if edges is None and on_edges.build_network().has_measured_links:  # those are links to its edges
            scenario = on_edges
        found = scenario.num_devices
        if devices is not None and devices != found:
            raise InvalidValue("flower.devices", f"must be the fleet table's {found}, or not be given", devices)
        return scenario.with_values(labels)
    count = devices if devices is not None else app.num_clients
    if count is None:
        raise UsageError(
            f"{app.folder / 'pyproject.toml'} has no num-supernodes in its federations, so that the number of clients "
            "is unknown; give --devices N (devices=N)."
        )
    if count < 1:
        raise InvalidValue("flower.devices", "must be ≥ 1", count)
    cells = 1 if scenario.is_flat else edges or scenario.network.num_edges
    if cells > count:
        raise InvalidValue("flower.edges", f"must be at most the number of clients, {count}", cells)
    sizes = [count // cells + (place < count % cells) for place in range(cells)]
    return scenario.with_values(labels | {"network.num_edges": cells, "network.devices_per_edge": sizes})


def variants_of(scenario: Scenario) -> dict[str, Scenario]:
    """Returns a scenario by name: without edges, deadline and selection, with each that it has, and with all."""
    plain: dict[str, dict[str, Any]] = {
        "edges": {"topology.name": "flat"},
        "deadline": {"plan.deadline_s": FLOWER_TIMEOUT_S},
        "selection": {"selection.name": "everyone"},
    }
    own = {
        "edges": not scenario.is_flat,
        "deadline": scenario.plan.deadline_s != FLOWER_TIMEOUT_S,
        "selection": scenario.selection.name not in ("everyone", default_scenario().selection.name),
    }
    parts = [part for part, has in own.items() if has]
    found: dict[str, list[str]] = {
        "plain": parts,
        **{part: [other for other in parts if other != part] for part in parts},
    }
    if len(parts) > 1:
        found["+".join(parts)] = []
    without = {name: {key: v for part in left for key, v in plain[part].items()} for name, left in found.items()}
    return {name: _with_cells(scenario.with_values(changes)) for name, changes in without.items()}


def _with_cells(scenario: Scenario) -> Scenario:
    """Returns the scenario with all devices in one cell, if it is flat."""
    if not scenario.is_flat or scenario.network.table is not None:
        return scenario
    return scenario.with_values({"network.num_edges": 1, "network.devices_per_edge": scenario.num_devices})


def run(
    app: FlowerApp | str | Path,
    scenario: Scenario | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    edges: int | None = None,
    devices: int | None = None,
    run_config: Mapping[str, Any] | None = None,
    compute: Rule = "auto",
    on_record: Callable[[Record], None] | None = None,
) -> Finished:
    """Runs an unmodified Flower app on the network of a scenario; returns when its server has ended.

    Args:
      app: its folder, with a pyproject.toml.
      scenario: network, radio, clock, deadline and selection; by default `default_scenario()`.
      out: the run folder; without one nothing is written.
      resume: continue the run in `out`: the server runs again from its beginning, with the kept answers of clients.
      edges: number of edges, each with a copy of the app's strategy; 0: none; None: as the scenario has it.
      devices: number of clients, in place of the app's `num-supernodes`.
      run_config: changes to the app's config.
      compute: how compute times are found: auto, measured, counted, table or paper.
      on_record: called with every record once it is saved.
    """
    need_flower("airprune.flower.run")
    app = FlowerApp.read(path_of("flower.app", app)) if isinstance(app, str | Path) else app
    app = app.with_config(run_config or {})
    chosen = scenario_of(app, scenario, edges=edges, devices=devices)
    check_engine(chosen.engine.name, workers=chosen.engine.workers, scheduler=chosen.engine.scheduler)
    folder = None if out is None else RunFolder(path_of("flower.out", out))
    if folder is not None and folder.has_run and not resume:
        raise UsageError(f"{out} already holds a run; resume it (--resume, resume=True) or choose another folder.")
    chosen = chosen.with_("clock.at_hz", _at_hz(chosen, folder))
    with contextlib.ExitStack() as stack:
        lock = None if folder is None else stack.enter_context(locked(folder.path))
        kept = _Kept(app, chosen, compute, folder, lock, on_record or (lambda record: None))
        return _finished(app, chosen, compute, kept)


def _at_hz(scenario: Scenario, folder: RunFolder | None) -> float:
    """Returns the clock of the machine: a resumed run keeps the one that it began with."""
    if scenario.clock.at_hz is None and folder is not None and folder.has_run:
        found = folder.scenario().clock.at_hz
        if found is not None:
            return found
    return at_hz(scenario)


def _finished(app: FlowerApp, scenario: Scenario, compute: Rule, kept: _Kept) -> Finished:
    from airprune.flower.client import kept_randomness, seed_all
    from airprune.flower.grid import AirGrid
    from airprune.flower.server import hooked
    from airprune.flower.session import Session, Settings

    with importable(app.folder):
        server = load(app.server, app.folder, "ServerApp")
        load(app.client, app.folder, "ClientApp")
        settings = Settings(app=app, scenario=scenario, compute=compute, kept=kept)
        with Session(settings) as session:
            if kept.is_finished:
                return kept.finished({}, ())
            grid = AirGrid(session)
            edges = 0 if session.air.network.num_edges == 1 else session.air.network.num_edges
            identify()
            with hooked(session, grid, edges, kept.begin), kept_randomness():
                seed_all(scenario.seed)
                _serve(server, grid, app)
            if not session.air.state.edge_round:
                raise WorkFailed("The app's server ended without sending a message, so that there is nothing to time.")
            kept.ends = True
            session.close_global_round()
            return kept.finished(session.final, tuple(sorted(session.rules)))


def _serve(server: Any, grid: Any, app: FlowerApp) -> None:
    from flwr.app import Context, RecordDict

    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(app.config))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            server(grid, context)
    except AirpruneError:
        raise
    except Exception as error:
        own = next((cause for cause in _causes(error) if isinstance(cause, AirpruneError)), None)
        if own is not None:
            raise own from error
        raise WorkFailed(f"The app's server failed: {trouble_of(error)}") from error


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


class _Kept:
    """The records of a run and its folder, if it has one; a resumed run's first records must be those of the folder.

    Attributes:
      ends: set before the last record.
      is_finished: True if nothing is left to do.
    """

    def __init__(
        self,
        app: FlowerApp,
        scenario: Scenario,
        compute: Rule,
        folder: RunFolder | None,
        lock: Lock | None,
        on_record: Callable[[Record], None],
    ) -> None:
        self._app, self.scenario, self._compute = app, scenario, compute
        self._folder, self._lock, self._on_record = folder, lock, on_record
        self._writer: RunWriter | None = None
        self._records: list[Record] = []
        self._known: list[Record] = []
        self._has_begun = self.ends = self.is_finished = False
        if folder is not None and folder.has_run:
            self._open(folder, folder.scenario().rounds.global_rounds)

    @property
    def identity(self) -> str:
        return hashlib.sha256(json.dumps([self._app.digest, self._compute]).encode()).hexdigest()

    @property
    def used(self) -> str:
        return "flower"

    @property
    def replies(self) -> Path | None:
        return None if self._folder is None else self._folder.replies_folder

    def begin(self, num_rounds: int | None = None) -> None:
        """Begins the folder, unless that is done; with the app's number of rounds, or that of its config."""
        if self._has_begun:
            return
        num_rounds = num_rounds or self._app.num_rounds or self.scenario.rounds.global_rounds
        global_rounds = math.ceil(num_rounds / max(self.scenario.edge_rounds_of))
        if self._folder is None:
            self.scenario, self._has_begun = self.scenario.with_("rounds.global_rounds", global_rounds), True
        else:
            self._open(self._folder, global_rounds)

    def _open(self, folder: RunFolder, global_rounds: int) -> None:
        assert self._lock is not None
        self._has_begun = True
        self.scenario = self.scenario.with_("rounds.global_rounds", global_rounds)
        if folder.has_run:
            self._check_app(folder)
        else:
            files.remove_folder(folder.replies_folder)
        self._writer = RunWriter(folder, self, self._lock)
        has_checkpoint = self._writer.load() is not None
        self.is_finished = has_checkpoint and folder.final_provenance() is not None
        if not self.is_finished:
            self._write_facts(folder, self._compute)
            self._writer.begin()
        self._known = folder.records() if has_checkpoint else []

    def _facts(self) -> dict[str, Any]:
        return {
            "app": self._app.name,
            "folder": str(self._app.folder),
            "config": dict(self._app.config),
            "flwr": importlib.metadata.version("flwr"),
            "digest": self._app.digest,
            "compute": self._compute,
        }

    def _write_facts(self, folder: RunFolder, compute_from: str) -> None:
        with files.atomic_file(folder.flower_file) as file:
            file.write((json.dumps(self._facts() | {"compute_from": compute_from}, indent=2) + "\n").encode())

    def _check_app(self, folder: RunFolder) -> None:
        """Refuses to resume a run of another app, or with other compute times."""
        found, ours = folder.flower(), self._facts()
        if found is None:
            raise UsageError(f"{folder.path} holds a run that is not of a Flower app; choose another folder.")
        for key, what in (("config", "run config"), ("compute", "--compute"), ("digest", "version of the app's files")):
            if found.get(key) != ours[key]:
                shown = "" if key == "digest" else f" ({found.get(key)!r} there, {ours[key]!r} here)"
                raise UsageError(f"{folder.path} was run with another {what}{shown}; resume with the same.")

    def arrays(self) -> Mapping[str, np.ndarray]:
        """The state of a server is its program's; a checkpoint only says how far the run has come."""
        return {"num_records": np.array([len(self._records)])}

    def facts(self) -> dict[str, Any]:
        return {"num_records": len(self._records)}

    def save(self, record: Record) -> None:
        """Keeps a record: writes it, or compares it with the one that is there from before."""
        place = len(self._records)
        self._records.append(record)
        if place < len(self._known):
            if json.loads(json.dumps(record)) != self._known[place]:
                raise WorkFailed(
                    f"Record {place + 1} differs from that of the run to resume: the app's server has randomness of "
                    "its own, beyond the seeds of Python, numpy and torch; start over in another folder."
                )
            return
        if self._writer is not None:
            self._writer.save(self, record, has_ended=self.ends)
        self._on_record(record)

    def finished(self, arrays: dict[str, np.ndarray], rules: tuple[str, ...]) -> Finished:
        if self._writer is not None and self._folder is not None:
            if self.is_finished:
                self._records = self._known
                arrays, _ = checkpoint.read(self._folder.final_file, inside=self._folder.path)
            else:
                self._write_facts(self._folder, "+".join(rules))
                self._writer.finish(arrays)
            files.remove_folder(self._folder.replies_folder)
        words = {word for record in self._records for word in record.get("compute_from", "").split("+") if word}
        return Finished(
            app=self._app,
            scenario=self.scenario,
            records=self._records,
            arrays=arrays,
            compute_from=rules or tuple(sorted(words)),
            folder=None if self._folder is None else self._folder.path,
        )


def compute_text(rules: tuple[str, ...]) -> str:
    """Returns one sentence on where compute times come from."""
    return f"Compute times: {'; '.join(RULES[rule] for rule in rules if rule in RULES)}."

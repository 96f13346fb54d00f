"""The rules that every component keeps, tried on one by small real runs: `airprune methods --check NAME`.

A component that keeps them can be combined with all others, killed, resumed and spread over workers without any
change of the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import tempfile
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from airprune.components.component import Owner
from airprune.engines.base import loaded, opened
from airprune.engines.serial import SerialEngine
from airprune.errors import AirpruneError, UnknownName, WorkFailed
from airprune.methods.loops import MINIBATCH_STEPS
from airprune.methods.registration import registries
from airprune.rounds.experiment import Experiment
from airprune.rounds.method import Method
from airprune.rounds.timing import DeviceOutcome, TimedRound
from airprune.runs import run
from airprune.runs.driver import InProcess, opened_store
from airprune.scenario import Scenario
from airprune.simulation import run_rounds

Array = np.ndarray

# The scenario keys by which a component of each kind is chosen.
KEYS = {
    "methods": ("method",),
    "channels": ("radio.channel",),
    "association": ("association.name",),
    "selection": ("selection.name",),
    "weighting": ("plan.weighting",),
    "schemes": ("plan.scheme",),
    "masking": ("masking.name",),
    "importance": ("masking.probe.importance",),
    "objectives": ("objective.name",),
    "compression": ("compression.name",),
    "aggregation": ("aggregation.edge", "aggregation.cloud"),
    "steps": ("aggregation.edge_step", "aggregation.cloud_step"),
    "topology": ("topology.name",),
    "loops": ("train.loop",),
    "optimisers": ("train.optimizer",),
    "schedules": ("train.schedule",),
    "augmentations": ("train.augmentation",),
}
# The sections with the options of components whose kind has another name.
_SECTIONS = {
    "channels": "radio",
    "schemes": "plan",
    "objectives": "objective",
    "steps": "aggregation",
    **dict.fromkeys(("loops", "optimisers", "schedules", "augmentations"), "train"),
}
# Settings without which a kind of component has nothing to do.
_BESIDE: dict[str, dict[str, Any]] = {
    "channels": {"radio.fading": "rayleigh", "radio.num_antennas": 2, "radio.shadowing_std_db": 6.0}
}
# Settings without which one component is refused.
_NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("aggregation", name): {"aggregation.cloud": "masked-mean", "plan.scheme": "no-pruning"}
    for name in ("secure-sum", "over-the-air")
}
_TIGHT_S, _LOOSE_S = 0.0003, 1.0
_SMALL: dict[str, Any] = {
    "seed": 5,
    "model.name": "mlp",
    "network.num_edges": 2,
    "network.devices_per_edge": 3,
    "train.learning_rate": 0.05,
    "train.batch_size": 16,
    "train.local_epochs": 1,
    "rounds.global_rounds": 2,
    "rounds.edge_rounds": 2,
    "engine.name": "serial",
}


@dataclass(frozen=True)
class Finding:
    """One rule, whether it was kept, and what was seen."""

    rule: str
    kept: bool
    seen: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def check(name: str, *, kind: str | None = None, processes: bool = True) -> list[Finding]:
    """Tries every rule that applies to the method or component of this name.

    Args:
      kind: of component, where several have the name.
      processes: True to start real worker processes too, which takes most of the time.
    """
    subject = Subject.named(name, kind)
    findings: list[Finding] = []
    for rule, trial in _RULES.items():
        if rule == PROCESSES and not processes:
            continue
        try:
            seen = trial(subject)
        except Exception as error:
            seen = False, _in_short(error)
        if seen is not None:
            findings.append(Finding(rule, *seen))
        if rule == RUNS and not findings[-1].kept:
            break  # nothing else can be tried
    return findings


def _in_short(error: Exception) -> str:
    """Returns an error in one line: our own sentence with a traceback's last line, or the exception and its place."""
    if isinstance(error, AirpruneError):
        first, *others = str(error).strip().splitlines()
        return f"{first} {others[-1].strip()}" if others else first
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


@dataclass(frozen=True)
class Subject:
    """A component under test, on a small federation of an MLP and four clouds of points."""

    kind: str
    name: str
    component: Any

    @classmethod
    def named(cls, name: str, kind: str | None = None) -> Subject:
        kinds = KEYS if kind is None else (kind,)
        found = [
            cls(registry.kind, name, registry[name])
            for registry in registries().values()
            if registry.kind in kinds and name in registry
        ]
        if not found:
            known = [n for registry in registries().values() if registry.kind in KEYS for n in registry]
            raise UnknownName("method or component", name[:60], known)
        return found[0]

    @cached_property
    def choice(self) -> dict[str, Any]:
        return dict.fromkeys(KEYS[self.kind], self.name) | _NEEDED.get((self.kind, self.name), {})

    def scenario(self, changes: Mapping[str, Any] | None = None, *, deadline_s: float = _TIGHT_S) -> Scenario:
        values = {**_SMALL, "plan.deadline_s": deadline_s, **_BESIDE.get(self.kind, {}), **self.choice}
        return Scenario().with_values(values).with_values(changes or {})

    @property
    def method(self) -> Method:
        return Method.of(self.scenario())

    @cached_property
    def whole(self) -> WholeRun:
        """The files of a run with a folder."""
        with tempfile.TemporaryDirectory(prefix="airprune-check-") as place:
            return _finished(self.scenario(), Path(place) / "run")

    @cached_property
    def watched(self) -> WatchedRun:
        """The same run without a folder."""
        return _watched(self.scenario())


@dataclass(frozen=True)
class WholeRun:
    records: bytes
    final: bytes
    files: tuple[str, ...]

    @property
    def outcome(self) -> tuple[bytes, bytes]:
        return self.records, self.final


@dataclass(frozen=True)
class WatchedRun:
    """Every edge round of a run within this process, all models and slots at its end, and the cloud's model."""

    rounds: Sequence[tuple[TimedRound, Any]]
    final: tuple[bytes, ...]
    model: Array


RUNS = "runs to its end"
PROCESSES = "same bytes in worker processes"


def _runs(subject: Subject) -> tuple[bool, str]:
    return True, f"{len(subject.whole.records.splitlines())} records"


def _order(subject: Subject) -> tuple[bool, str]:
    """Tries another order of the tasks, other workers, and every task done twice, as after a worker's death."""
    same = _watched(subject.scenario(), engine=Shuffled, workers=3).final == subject.watched.final
    return same, f"tasks shuffled over 3 workers, each done twice, end in {'the same' if same else 'other'} bytes"


def _engines(subject: Subject) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory(prefix="airprune-check-") as place:
        scenario = subject.scenario({"engine.name": "processes", "engine.workers": 2})
        same = _finished(scenario, Path(place) / "run").outcome == subject.whole.outcome
    return same, f"two worker processes end in {'the same' if same else 'other'} bytes"


def _resumes(subject: Subject) -> tuple[bool, str]:
    scenario = subject.scenario()
    with tempfile.TemporaryDirectory(prefix="airprune-check-") as place:
        out, stops = Path(place) / "run", 0
        while True:
            with contextlib.closing(run(scenario, out=out, resume=stops > 0, dataset=points())) as records:
                if next(records, None) is None:
                    break
            stops += 1
        same = _left_in(out).outcome == subject.whole.outcome
    return same, f"stopped {stops} times: {'the same' if same else 'other'} bytes as in one go"


def _deadline(subject: Subject) -> tuple[bool, str] | None:
    method = subject.method
    if not (method.scheme.adapts and method.topology.adapts and method.masking.adapts):
        return None
    totals = [timed.total_s[timed.takes_part] for timed, _ in subject.watched.rounds]
    latest = max(float(total.max(initial=0.0)) for total in totals)
    return latest <= _TIGHT_S * (1 + 1e-9), f"latest upload {latest / _TIGHT_S:.6f} of the deadline"


def _bits(subject: Subject) -> tuple[bool, str]:
    gaps: list[float] = []
    for timed, results in subject.watched.rounds:
        charged = dict(zip(timed.planned.device.tolist(), timed.planned.bits.tolist(), strict=True))
        mask_bits = np.where(timed.ratio > 0, timed.planned.charges.mask_bits(timed.planned.keep), 0.0)
        masks = dict(zip(timed.planned.device.tolist(), mask_bits.tolist(), strict=True))
        for result in results:
            rows = zip(result.statistics.device.tolist(), result.statistics.sent_bits.tolist(), strict=True)
            for device, sent in rows:
                beside = timed.planned.charges.beside_bits + masks[device]
                gaps.append(abs(charged[device] - beside - sent))
    return max(gaps) == 0.0, f"{len(gaps)} uploads, charged and counted bits differ by at most {max(gaps):g}"


def _open(subject: Subject) -> tuple[bool, str] | None:
    """Compares the component with its options fully open to plain averaging of whole models."""
    opened = subject.component.fully_open if subject.kind not in ("methods", "importance") else None
    if opened is None:
        if subject.kind not in ("masking", "importance", "schemes"):
            return None
        opened = {}
    owner = _SECTIONS.get(subject.kind, subject.kind)
    changes = {f"{owner}.{subject.name}.{key}": value for key, value in opened.items()}
    ours, theirs = _watched(subject.scenario(changes, deadline_s=_LOOSE_S)).model, _plain_average()
    same = np.array_equal(ours, theirs)
    worst = float(np.max(np.abs(ours - theirs)))
    return same, "equals hierarchical FedAvg bit for bit" if same else f"differs from it by up to {worst:g}"


def _slot_names(subject: Subject) -> tuple[bool, str]:
    experiment = Experiment.of(subject.scenario(), dataset=points())
    names = [slot.name for slot in experiment.slots]
    if not names:
        left = "memory" in subject.whole.files
        return not left, "no slots, but a memory folder" if left else "no slots, no bytes"
    unnamed = [name for name in names if "." not in name]
    kinds = ", ".join(f"{slot.name} ({slot.owner.value})" for slot in experiment.slots)
    return not unnamed, kinds if not unnamed else f"{unnamed[0]!r} does not begin with a component's name and a dot"


def _lost_devices(subject: Subject) -> tuple[bool, str] | None:
    """Checks that only devices that arrived change their state."""
    experiment = Experiment.of(subject.scenario({"events.dropout_probability": 0.5}), dataset=points())
    slots = [slot for slot in experiment.slots if slot.owner == Owner.DEVICE]
    if not slots:
        return None
    arrived: set[int] = set()

    def watch(timed: TimedRound, results: Any) -> None:
        arrived.update(timed.planned.device[timed.outcome == DeviceOutcome.OK].tolist())

    with tempfile.TemporaryDirectory(prefix="airprune-check-") as place:
        state = experiment.initial_state()
        state.store = opened_store(experiment, Path(place))
        with SerialEngine(experiment.job(InProcess(experiment.dataset))) as executor:
            next(run_rounds(experiment, executor, state, watch=watch))
        lost = [n for n in range(experiment.network.num_devices) if n not in arrived]
        memory = state.store.take(lost) if state.store is not None and lost else {}
        moved = [slot.name for slot in slots if lost and np.any(memory[slot.name] != slot.row(experiment.shape))]
    return (
        not moved,
        f"{len(lost)} devices never arrived; {'their state changed' if moved else 'their state is unchanged'}",
    )


def _links(subject: Subject) -> tuple[bool, str] | None:
    """Checks the gains and rates of a channel: computed twice, and for another method, they are the same."""
    if subject.kind != "channels":
        return None
    ours, again, others = (_gains_and_rates(subject, method) for method in (None, None, "hierfavg"))
    if least := min(0.0, *(float(array.min()) for array in ours)):
        return False, f"the smallest gain or rate is {least:g}"
    for what, seen in (("a second time", again), ("for method hierfavg", others)):
        if not all(np.array_equal(one, other) for one, other in zip(ours, seen, strict=True)):
            return False, f"gains or rates computed {what} differ"
    return True, f"gains and the rates of {len(ours) - 2} edge rounds are the same"


def _gains_and_rates(subject: Subject, method: str | None) -> list[Array]:
    """Returns large-scale gains to own and all stations, then the rates of three edge rounds."""
    experiment = Experiment.of(subject.scenario({} if method is None else {"method": method}), dataset=points())
    stations, edges = experiment.stations, np.arange(experiment.network.num_edges)
    values, view = experiment.initial_state().values, experiment.stations.view(0)
    found = [view.own_gain, view.gains()]
    for round_index in range(3):
        served, values = stations.served(values, round_index, starts=True)
        found.append(stations.candidates(served, edges, round_index, {}, values).full_band_rate_bps)
    return found


def _masks(subject: Subject) -> tuple[bool, str] | None:
    """Checks that no forward pass of a training loop sees a pruned or frozen weight moved.

    Such weights are put back before every minibatch and at the end; a loop that makes several steps on one minibatch
    has to keep them itself.
    """
    if subject.kind != "loops" or subject.name == MINIBATCH_STEPS:
        return None
    moved: list[int] = []
    for masking in ("probe", "frozen"):
        experiment = Experiment.of(subject.scenario({"masking.name": masking}), dataset=points())
        job = experiment.job(InProcess(experiment.dataset))
        watched: Any = _Watched(experiment.training.loop, moved)
        job = dataclasses.replace(job, settings=dataclasses.replace(job.settings, loop=watched))
        with SerialEngine(job) as executor:
            next(run_rounds(experiment, executor, experiment.initial_state()))
    worst = max(moved, default=0)
    return not worst, f"{len(moved)} forward passes of pruned devices; at most {worst} weights had moved that may not"


class _Watched:
    """A loop, and the number of weights that each of its forward passes found moved against the mask."""

    name = "watched"

    def __init__(self, loop: Any, moved: list[int]) -> None:
        self._loop, self._moved = loop, moved

    def train(self, model: Any, batches: Any, context: Any) -> None:
        tensors, masks = dict(model.named_parameters()), context.mask
        before = {name: tensors[name].detach()[~mask].clone() for name, mask in masks.items()}

        def watch(*_: Any) -> None:
            moved = [int((tensors[name].detach()[~mask] != before[name]).sum()) for name, mask in masks.items()]
            if masks:
                self._moved.append(sum(moved))

        hook = model.register_forward_pre_hook(watch)
        try:
            self._loop.train(model, batches, context)
        finally:
            hook.remove()


_RULES: dict[str, Callable[[Subject], tuple[bool, str] | None]] = {
    RUNS: _runs,
    "same bytes in any order, on any number of workers": _order,
    PROCESSES: _engines,
    "stopped and resumed: same bytes": _resumes,
    "no device misses the deadline": _deadline,
    "charged bits equal the encoder's count": _bits,
    "fully open equals plain averaging": _open,
    "a training loop computes inside its mask": _masks,
    "state only in slots": _slot_names,
    "a device that did not arrive leaves no trace": _lost_devices,
    "gains at least 0, the same for every method": _links,
}


def points(num_train: int = 120, num_test: int = 40) -> Any:
    """Returns four clouds of points in twelve dimensions, one per class: ((x, y), (x_test, y_test))."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 12)) * 2

    def draw(count: int) -> tuple[Array, Array]:
        y = np.arange(count) % 4
        return (centres[y] + rng.normal(size=(count, 12))).astype(np.float32), y

    return draw(num_train), draw(num_test)


def _finished(scenario: Scenario, out: Path) -> WholeRun:
    for _ in run(scenario, out=out, dataset=points()):
        pass
    return _left_in(out)


def _left_in(folder: Path) -> WholeRun:
    return WholeRun(
        records=(folder / "records.jsonl").read_bytes(),
        final=(folder / "final.safetensors").read_bytes(),
        files=tuple(path.name for path in folder.iterdir()),
    )


def _watched(
    scenario: Scenario, *, engine: type[SerialEngine] = SerialEngine, workers: int | None = None
) -> WatchedRun:
    experiment = Experiment.of(scenario, dataset=points())
    state, rounds = experiment.initial_state(), []
    with tempfile.TemporaryDirectory(prefix="airprune-check-") as place:
        state.store = opened_store(experiment, Path(place))
        with engine(experiment.job(InProcess(experiment.dataset)), workers=workers) as executor:
            for _ in run_rounds(experiment, executor, state, watch=lambda *seen: rounds.append(seen)):
                pass
        arrays = [*state.arrays().values()]
        if state.store is not None:
            arrays += state.store.take(range(experiment.network.num_devices)).values()
    return WatchedRun(rounds, tuple(array.tobytes() for array in arrays), state.models[0])


@cache
def _plain_average() -> Array:
    """Returns the cloud's model after hierarchical FedAvg."""
    return _watched(Scenario().with_values({**_SMALL, "plan.deadline_s": _LOOSE_S})).model


class Shuffled(SerialEngine):
    """Several workers in this process; tasks in an order of their own, each done twice."""

    def start(self) -> None:
        super().start()
        job = self.factory
        self._crew = [opened(pickle.loads(cloudpickle.dumps(job)), job.folder) for _ in range(self.workers or 1)]
        self._rng = np.random.default_rng(self.workers)

    def as_completed(
        self, method: str, calls: Sequence[Any], *, until: Callable[[], int] | None = None
    ) -> Generator[tuple[int, Any]]:
        for index in self._rng.permutation(len(calls)).tolist():
            shared, task = calls[index]
            try:
                for worker in self._rng.integers(len(self._crew), size=2).tolist():
                    result = getattr(self._crew[worker], method)(shared, loaded(task))
            except AirpruneError as error:
                raise WorkFailed(str(error)) from error
            yield index, result


__all__ = ["Finding", "check"]

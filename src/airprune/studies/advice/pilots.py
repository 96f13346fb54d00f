"""Pilots: small runs of every method, and a longer one of the lossless method at the scenario's own size.

A small pilot has the scenario's network, radio, planner and model, few samples, and as many steps per round as the real
run has, so that a method loses as much in a round, and regains as much. Only its slowdown against the lossless
pilot of the same seed is read from it. The reference has the scenario's own samples and batches, and selects a random
share of each edge's devices in every round, which costs little accuracy and leaves the time for many rounds; the
learning curve is read from it. A large fleet has its small pilots on a sample of its devices: see `sample_fleet`.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.errors import UsageError, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.scenario import Scenario
from airprune.studies.advice.candidates import Candidate
from airprune.studies.advice.sample_fleet import sample_fleet
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun, at_a_time

Array = np.ndarray

# Training samples of a small pilot, in all and at least per device; its batches are no smaller than this.
SMALL_SAMPLES, SMALL_PER_DEVICE, SMALL_BATCH = 2_000, 40, 8
SMALL_TEST, REFERENCE_TEST = 1_000, 5_000
# Devices of a small pilot, about, at the most.
SMALL_DEVICES = 100
# Samples that the reference trains on in an edge round, each once per epoch: with this budget or more, and at least.
REFERENCE_SAMPLES, REFERENCE_BUDGET_S, REFERENCE_LEAST = 20_000, 120.0, 4_000
SEEDS = 2
# Of the time for small pilots, what the first seed's have.
FIRST_SEED = 0.65

_MEASURED: dict[str, Any] = {**WITHIN, "rounds.evaluate_every": "edge", "diagnostics.gradients": False}

_CODES = ("bits_per_weight", "code_error")

Report = Callable[[int, int, float], None]
"""Receives (pilots done, pilots in all, seconds until the budget is used up)."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The result of a pilot.

    Attributes:
      accuracy: after every edge round.
      code_error: the mean share of an update that codes lost, by their bits per weight; empty if none was chosen.
    """

    accuracy: tuple[float, ...]
    code_error: Mapping[float, float]


@dataclass(frozen=True, kw_only=True)
class Pilots:
    """All of them.

    Attributes:
      reference: the lossless method at the scenario's own size, and the share of devices it selected.
      small: by method, one per seed.
      small_samples, small_devices: what each of these trained on.
      seconds: what all took.
    """

    reference: Pilot
    share: float
    small: Mapping[str, Sequence[Pilot]]
    small_samples: int
    seeds: tuple[int, ...]
    seconds: float
    small_devices: int = 0

    @property
    def fewest_rounds(self) -> dict[str, int]:
        """Returns the rounds that every pilot of a method had at least."""
        return {name: min(len(pilot.accuracy) for pilot in found) for name, found in self.small.items()}

    def curves(self, method: str) -> list[Array]:
        return [np.array(pilot.accuracy) for pilot in self.small[method]]


@dataclass(frozen=True, kw_only=True)
class PilotReader:
    """Reads a run from its start until it has had its rounds, or its time is over; a round it has in any case.

    Attributes:
      ends: when its time is over, by this machine's clock; ∞ for as long as it takes.
    """

    rounds: int
    ends: float

    def __call__(self, records: Iterable[dict[str, Any]]) -> Pilot:
        before = time.time()
        accuracy: list[float] = []
        errors: dict[float, list[float]] = defaultdict(list)
        for record in records:
            if record["kind"] != "edge":
                continue
            accuracy.append(record.get("test_accuracy") or 0.0)  # none: it diverged
            for bits, error in zip(*(record.get(key, ()) for key in _CODES), strict=True):
                if bits is not None and error is not None:
                    errors[bits].append(error)
            now = time.time()
            # A round that would end farther beyond the time than this one before it is not begun.
            if len(accuracy) >= self.rounds or now + (now - before) / 2 >= self.ends:
                break
            before = now
        return Pilot(
            accuracy=tuple(accuracy), code_error={bits: float(np.mean(lost)) for bits, lost in sorted(errors.items())}
        )


def run_pilots(
    methods: Sequence[Candidate],
    experiment: Experiment,
    *,
    budget_s: float,
    rounds: int | None = None,
    report: Report = lambda done, total, left: None,
) -> Pilots:
    """Runs them on this machine's cores.

    Args:
      methods: the lossless one first.
      experiment: of the lossless one, for its sizes.
      budget_s: wall-clock time for all of them; not read if `rounds` are given.
      rounds: edge rounds of each: then the outcome does not depend on the machine's speed.
    """
    started = time.time()
    lossless = methods[0].scenario
    settings = lossless.engine
    if settings.name == "dask":
        raise UsageError("advise runs its pilots on this machine: engine.name must be processes or serial, got dask.")
    seeds = tuple(range(lossless.seed, lossless.seed + SEEDS))
    wanted = REFERENCE_SAMPLES
    if rounds is None:
        wanted = round(max(REFERENCE_LEAST, min(1.0, budget_s / REFERENCE_BUDGET_S) * REFERENCE_SAMPLES))
    reference, share = reference_scenario(lossless, experiment, samples=wanted)
    folder = contextlib.ExitStack()
    home = Path(folder.enter_context(tempfile.TemporaryDirectory(prefix="airprune-pilots-")))
    small = [
        (method.name, small_scenario(method.scenario, experiment, seed, folder=home))
        for seed in seeds
        for method in methods
    ]
    most = rounds or math.prod((lossless.rounds.global_rounds, max(lossless.edge_rounds_on(experiment.network))))
    scenarios = [reference, *(scenario for _, scenario in small)]
    ends = ends_s(math.inf if rounds else budget_s, at_a_time(settings, len(scenarios)), len(methods))
    runs = [
        CampaignRun(
            label=f"pilot {place}",
            scenario=scenario,
            folder_name="",
            read=PilotReader(rounds=most, ends=started + share_s),
        )
        for place, (scenario, share_s) in enumerate(zip(scenarios, ends, strict=True))
    ]
    found: dict[str, Pilot] = {}
    report(0, len(runs), budget_s)
    with folder, contextlib.closing(Campaign(runs, None, settings).outcomes(runs)) as outcomes:
        for outcome in outcomes:
            if outcome.trouble is not None:
                raise WorkFailed(outcome.trouble)
            found[outcome.run.label] = outcome.found
            report(len(found), len(runs), max(0.0, started + budget_s - time.time()))
    first, *others = (found[run.label] for run in runs)
    by_method: dict[str, list[Pilot]] = defaultdict(list)
    for (name, _), pilot in zip(small, others, strict=True):
        by_method[name].append(pilot)
    return Pilots(
        reference=first,
        share=share,
        small=dict(by_method),
        small_samples=small[0][1].data.train_samples or experiment.dataset.num_train,
        seeds=seeds,
        seconds=time.time() - started,
        small_devices=_pilot_devices(lossless, experiment),
    )


def ends_s(budget_s: float, workers: int, num_methods: int) -> list[float]:
    """Returns when each pilot's time is over, from the start: the reference's, then all methods' seed by seed.

    One worker has the reference, the others the small pilots one after the other; a single worker has both. The first
    seed has the most time, since late rounds are worth more than a second seed.
    """
    num_small = SEEDS * num_methods
    if budget_s == math.inf or workers > num_small:
        return [budget_s] * (1 + num_small)
    begin_s, lanes = (budget_s / 2, 1) if workers == 1 else (0.0, workers - 1)
    waves = math.ceil(num_methods / lanes)
    first = [FIRST_SEED * (place // lanes + 1) / waves for place in range(num_methods)]
    second = [FIRST_SEED + (1.0 - FIRST_SEED) * share / FIRST_SEED for share in first]
    small_s = [begin_s + share * (budget_s - begin_s) for share in first + second]
    return [begin_s or budget_s, *small_s]


def _pilot_devices(scenario: Scenario, experiment: Experiment) -> int:
    sample = sample_fleet(scenario, most_devices=SMALL_DEVICES)
    return experiment.network.num_devices if sample is None else len(sample.kept)


def small_scenario(scenario: Scenario, experiment: Experiment, seed: int, *, folder: Path | None = None) -> Scenario:
    """Returns a scenario with fewer samples in smaller batches; `experiment` has the real sizes.

    On a device clock its devices are slower by as much, so that they have the real run's compute times.

    Args:
      folder: for the table of a sample of a large fleet, or of one with measured times; None: all devices as they are.
    """
    devices, own = experiment.network.num_devices, int(experiment.data_sizes.sum())
    sample = None if folder is None else sample_fleet(scenario, most_devices=SMALL_DEVICES)
    if sample is not None and len(sample.kept) < devices:
        own = max(1, round(own * len(sample.kept) / devices))
        devices = len(sample.kept)
    samples = min(own, max(SMALL_SAMPLES, SMALL_PER_DEVICE * devices))
    batch = scenario.train.batch_size
    small = scenario.with_values(
        {
            **_MEASURED,
            **_slower(scenario, own / samples),
            "seed": seed,
            "data.train_samples": samples,
            "data.test_samples": min(SMALL_TEST, experiment.dataset.num_test),
            "train.batch_size": min(batch, max(SMALL_BATCH, round(batch * samples / own))),
        }
    )
    is_measured = experiment.network.seconds_per_sample is not None and samples < own
    if sample is None or folder is None or not (is_measured or devices < experiment.network.num_devices):
        return small
    return sample.scenario(small, folder / f"fleet-{own}-{samples}.csv", slower=own / samples)


def _slower(scenario: Scenario, factor: float) -> dict[str, Any]:
    """Returns the clock of devices that take so many times as long for a sample; the paper's counts none."""
    clock = scenario.clock
    if clock.compute == "paper" or factor == 1.0:
        return {}
    if clock.compute == "measured":
        assert clock.seconds_per_sample is not None
        return {"clock.seconds_per_sample": clock.seconds_per_sample * factor}
    if clock.flops_per_cycle is not None:
        return {"clock.flops_per_cycle": clock.flops_per_cycle / factor}
    return {"clock.efficiency": clock.efficiency / factor}


def reference_scenario(
    lossless: Scenario, experiment: Experiment, *, samples: int = REFERENCE_SAMPLES
) -> tuple[Scenario, float]:
    """Returns (the scenario itself with fewer selected devices per round, their share).

    Args:
      samples: that it trains on in an edge round, about, each once per epoch.
    """
    trained = float(np.sum(lossless.train.samples_seen(experiment.data_sizes)))
    share = min(1.0, samples / trained) if lossless.selection.name == "everyone" else 1.0
    changes = {**_MEASURED, "data.test_samples": min(REFERENCE_TEST, experiment.dataset.num_test)}
    if share < 1.0:
        changes |= {"selection.name": "random-share", "selection.random-share.share": share}
    return lossless.with_values(changes), share


def described(pilots: Pilots) -> str:
    """Describes the pilots in a sentence."""
    few = min(len(pilot.accuracy) for found in pilots.small.values() for pilot in found)
    many = max(len(pilot.accuracy) for found in pilots.small.values() for pilot in found)
    small = f"{few}" if few == many else f"{few} … {many}"
    on = f" on {pilots.small_devices:,} devices" if pilots.small_devices else ""
    return (
        f"Pilots: {len(pilots.small)} methods × {len(pilots.seeds)} seeds with {pilots.small_samples:,} samples{on} "
        f"for {small} edge rounds; the lossless one with its own samples for {len(pilots.reference.accuracy)}"
        + (f", with {pilots.share:.0%} of the devices selected" if pilots.share < 1.0 else "")
        + f"; {pilots.seconds:.0f} s."
    )

"""The work of an edge's devices as the page draws it: planned by scheme `work`, and as tried with the sliders."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.methods.compression import COMPRESSIONS
from airprune.methods.compression.base import Wire
from airprune.planning import Plan, PlanProblem, WorkModel
from airprune.planning.compression_levels import Ladder
from airprune.planning.deadline import auto_work_deadline_s
from airprune.planning.plan import round_up_ms
from airprune.planning.schemes.work import Work
from airprune.planning.what_if import outlook, usual_changes
from airprune.rounds.optimisers import gradients_in_update
from airprune.text import counted
from airprune.units import mhz_to_hz, ms_to_s
from airprune.web.answers import number_or_null, numbers
from airprune.web.work.boards import CNN, KINDS, LAYER_NAMES, LAYER_WEIGHTS
from airprune.web.work.settings import WorkSettings

Array = np.ndarray

# As of local training in docs/work.md: two passes bring half of the progress of endless training, at most eight.
_HALF_EPOCHS, _MAX_EPOCHS, _MOMENTUM = 2, 8, 0.9
# Tried uploads have these bits per weight and an equal share.
TRIED_BITS = 32.0
_FORWARD_SHARE = CNN.forward / CNN.flops_per_sample


def problem_of(settings: WorkSettings) -> PlanProblem:
    """Returns the planning problem of the devices, on one edge, with the paper's CNN."""
    sample_s = np.array([KINDS[kind].sample_s(settings.batch, settings.cpu_ghz) for kind in settings.kinds])
    per_epoch = int(np.ceil(settings.samples / settings.batch))
    most = _MAX_EPOCHS * per_epoch
    gradients = gradients_in_update("sgd", _MOMENTUM, np.arange(most + 1, dtype=np.float64))
    half = gradients_in_update("sgd", _MOMENTUM, np.array(float(_HALF_EPOCHS * per_epoch)))
    whole, count = CNN.flops_per_sample, len(LAYER_NAMES)
    work = WorkModel(
        first_trained=np.arange(count),
        part_weights=np.cumsum(LAYER_WEIGHTS[::-1])[::-1],
        part_cost=[CNN.step_flops(first) / whole for first in range(count)],
        part_saved=[CNN.frozen_forward(first) / whole for first in range(count)],
        part_value=1.0 - np.arange(count) / count,
        epoch_s=sample_s * settings.samples,
        step_s=sample_s * min(settings.batch, settings.samples),
        steps_per_epoch=per_epoch,
        most_steps=most,
        progress=gradients / (gradients + half),
    )
    levels = COMPRESSIONS["ladder"]().ladder(Wire(value_bits=32.0, num_weights=sum(LAYER_WEIGHTS), num_tensors=4)) or ()
    ladder = Ladder([level.bits_per_weight for level in levels], [level.error for level in levels])
    return PlanProblem(
        full_band_rate_bps=np.full(len(sample_s), settings.bits_per_hz * mhz_to_hz(settings.bandwidth_mhz)),
        seconds_per_weight=0.0,
        bits_per_weight=float(ladder.bits_per_weight[0]),
        deadline_s=ms_to_s(settings.deadline_ms),
        ladder=ladder,
        work=work,
    )


def picture(settings: WorkSettings) -> dict[str, Any]:
    """Returns everything the page draws, as JSON values."""
    problem, scheme = problem_of(settings), Work()
    plan = scheme.plan(problem)
    best_s = auto_work_deadline_s(problem, scheme.draft, coverage=scheme.coverage)
    kinds = [KINDS[kind] for kind in settings.kinds]
    return {
        "settings": settings.model_dump(),
        "devices": [{"label": kind.label, "is_assumed": kind.is_assumed, "source": kind.source} for kind in kinds],
        "planned": _planned(problem, plan),
        "tried": _tried(problem, settings),
        "best_deadline_ms": float(round_up_ms(best_s)),
        "smallest_deadline_ms": float(round_up_ms(float(plan.min_deadline_s[0]))),
        "words": _words(settings, problem, plan, scheme),
    }


def part_name(first: int) -> str:
    """Returns what a device trains that begins with this layer."""
    if first == 0:
        return "all layers"
    return f"{LAYER_NAMES[first]} alone" if first == len(LAYER_NAMES) - 1 else f"{LAYER_NAMES[first]} and above"


def _planned(problem: PlanProblem, plan: Plan) -> list[dict[str, Any]] | None:
    """Returns the planned work of each device; None if there is no plan."""
    work = problem.work
    if plan.failed.any() or work is None:
        return None
    assert plan.local_steps is not None and plan.first_trained is not None and plan.compute_s is not None
    assert plan.bits_per_weight is not None
    forward_s = work.forward_s(plan.local_steps, plan.first_trained, _FORWARD_SHARE)
    columns = {
        "trains": [part_name(first) for first in plan.first_trained.tolist()],
        "steps": plan.local_steps.tolist(),
        "bits": numbers(plan.bits_per_weight),
        "share": numbers(plan.bandwidth_share),
        "forward_ms": numbers(1e3 * forward_s),
        "backward_ms": numbers(1e3 * (plan.compute_s - forward_s)),
        "upload_ms": numbers(1e3 * (plan.latency_s - plan.compute_s)),
        "total_ms": numbers(1e3 * plan.latency_s),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _tried(problem: PlanProblem, settings: WorkSettings) -> list[dict[str, Any]]:
    """Returns the times of the same work on every device, with equal shares, and the most steps that fit."""
    work, part = problem.work, settings.first_trained
    assert work is not None
    steps = np.full(problem.num_devices, settings.steps)
    compute_s, forward_s = work.seconds(steps, part), work.forward_s(steps, part, _FORWARD_SHARE)
    upload_s = TRIED_BITS * work.part_weights[part] * problem.num_devices / problem.full_band_rate_bps
    most = work.steps_within(np.maximum(problem.deadline_s - upload_s, 0.0), part)
    total_s = compute_s + upload_s
    columns = {
        "forward_ms": numbers(1e3 * forward_s),
        "backward_ms": numbers(1e3 * (compute_s - forward_s)),
        "upload_ms": numbers(1e3 * upload_s),
        "total_ms": numbers(1e3 * total_s),
        "fits": (total_s <= problem.deadline_s * (1.0 + 1e-12)).tolist(),
        "most_steps": most.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _words(settings: WorkSettings, problem: PlanProblem, plan: Plan, scheme: Work) -> dict[str, Any]:
    """Returns the outcome in sentences: of the plan, of the tried work, and what more would buy."""
    tried = _tried(problem, settings)
    fits = sum(one["fits"] for one in tried)
    what = f"{counted(settings.steps, 'step')} of {part_name(settings.first_trained)}"
    said = f"{what}: {fits} of {counted(len(tried), 'device')} {'ends' if fits == 1 else 'end'} in time."
    if plan.failed.any():
        verdict = (
            f"No plan for {settings.deadline_ms:g} ms: the smallest deadline that serves all is "
            f"{round_up_ms(float(plan.min_deadline_s[0]))} ms."
        )
        return {"kind": "bad", "verdict": verdict, "tried": said, "prices": []}
    assert plan.first_trained is not None and plan.local_steps is not None
    whole, band_hz = int(np.count_nonzero(plan.first_trained == 0)), mhz_to_hz(settings.bandwidth_mhz)
    verdict = (
        f"Every device meets the deadline: {whole} of {len(tried)} train all layers, with "
        f"{plan.local_steps.min()} to {plan.local_steps.max()} local steps."
    )
    return {"kind": "good", "verdict": verdict, "tried": said, "prices": _prices(problem, scheme, band_hz)}


def _prices(problem: PlanProblem, scheme: Work, bandwidth_hz: float) -> list[str]:
    """Returns what 1 MHz, 1 s and CPUs twice as fast would buy, each planned anew."""
    given = outlook(problem, scheme)
    found = []
    for change in usual_changes(problem):
        if not (change.more_hz or change.more_s or change.times_cpu != 1.0):
            continue
        other = outlook(change.of(problem, bandwidth_hz=bandwidth_hz, cpu_hz=1.0), scheme)
        gain = [
            number_or_null(100.0 * (after / before - 1.0))
            for after, before in ((other.progress, given.progress), (other.progress_per_s, given.progress_per_s))
        ]
        if None not in gain:
            found.append(f"{change.words}: {gain[0]:+.2g} % progress a round, {gain[1]:+.2g} % a second.")
    return found

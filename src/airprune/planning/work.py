"""Plans the work of devices: trained part, local steps, bits per weight and bandwidth share together.

Per edge, choose for every device n one option o = (part d, steps τ, level q) and a share b:

    maximise   Σ_n c_n V_d g(τ) (1 − E_q)
    subject to t_n(τ) κ_d − (t_n(τ) − t_n)⁺ φ_d + x_n + (R_q W_d + e_n) / (b_n r_n) ≤ T,   Σ_n b_n ≤ 1

t_n(τ) are the seconds of τ local steps with the whole model, t_n those of one pass over the samples. Part d takes the
share κ_d of them, and φ_d less from the second pass on, if it keeps the outputs of its frozen layers; W_d are the
weights that it trains and sends. V_d is the value of training that part and g the progress of τ steps, which has
diminishing returns. The smallest share of an option is b = (R_q W_d + e) / (r (T − c)) with its compute time c, so this
is a multiple-choice knapsack with one price per edge: see `multiple_choice`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from airprune.planning.edges import EdgeGroups
from airprune.planning.feasibility import blocking_devices, min_deadline_s
from airprune.planning.multiple_choice import Choice, choose_options
from airprune.planning.problem import PlanProblem
from airprune.planning.tradeoff import ROUNDING_MARGIN
from airprune.planning.work_model import WorkModel

Array = np.ndarray

# Where parts × steps × devices are more than this, steps are not tried one by one.
_MOST_STEPS = 1_000_000
# Arrays of a plan with one entry for each edge.
_OF_EDGES = ("total", "bound", "price", "min_deadline_s")
# Devices that are planned together, if their edges are smaller.
_CHUNK_DEVICES = 16_384
# Times for the upload that are tried then, the steps being what they leave: multiples of the time that the whole model
# takes over an equal share, and at most this share of the deadline.
WINDOWS = ((1.2, 0.7), (0.6, 0.5))


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """All options of all devices.  Each [num_options, num_devices]

    Attributes:
      part, level: of each option, the same for all devices.  [num_options]
      steps: of each option.
      seconds: compute time.
      share: the smallest bandwidth share with which it meets the deadline; infinite if it never does.
      value: what it is worth.
    """

    part: Array
    steps: Array
    level: Array
    seconds: Array
    share: Array
    value: Array


def work_options(problem: PlanProblem, work: WorkModel, *, every_step: bool = True) -> Options:
    """Returns the options of every device within the deadline.

    Args:
      every_step: whether all numbers of steps are options; else one step, and those that `WINDOWS` leave.
    """
    levels, bits_per_weight, error = _levels(problem)
    part, steps = _every_step(work) if every_step else _few_steps(problem, work, bits_per_weight[0])
    column = part[:, None, None]
    shape = (len(part), len(levels), problem.num_devices)
    seconds = work.seconds(steps, column)
    bits = bits_per_weight[:, None] * work.part_weights[column] + problem.fixed_bits
    left_s = problem.deadline_s - seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        share = bits / (problem.full_band_rate_bps * left_s) * (1.0 + ROUNDING_MARGIN)  # as `share_for_weights`
    share[~np.broadcast_to((left_s > 0.0) & (steps <= work.most_steps), shape)] = np.inf
    share[..., problem.full_band_rate_bps <= 0.0] = np.inf
    most_value = (work.part_value[part][:, None] * (1.0 - error))[..., None] * problem.objective_weight

    def flat(array: Array) -> Array:
        return np.broadcast_to(array, shape).reshape(-1, problem.num_devices)

    return Options(
        part=np.repeat(part, len(levels)),
        steps=flat(steps),
        level=np.tile(levels, len(part)),
        seconds=flat(seconds),
        share=flat(share),
        value=flat(most_value * work.progress[steps]),
    )


def _every_step(work: WorkModel) -> tuple[Array, Array]:
    """Returns (part, steps) of every part with every number of steps.  [num_rows], [num_rows, 1, 1]"""
    parts, most = len(work.part_cost), int(work.most_steps.max())
    return np.repeat(np.arange(parts), most), np.tile(np.arange(1, most + 1), parts)[:, None, None]


def _few_steps(problem: PlanProblem, work: WorkModel, bits_per_weight: float) -> tuple[Array, Array]:
    """Returns (part, steps) of every part with what `WINDOWS` leave.  [num_rows], [num_rows, 1, num_devices]

    And one step of the least part, which fits if anything does.
    """
    part = np.repeat(np.arange(len(work.part_cost)), len(WINDOWS))
    bits = bits_per_weight * work.part_weights[0] + problem.fixed_bits
    with np.errstate(divide="ignore"):
        equal_s = problem.groups.spread(problem.groups.counts) * bits / problem.full_band_rate_bps
    windows_s = [np.minimum(times * equal_s, most * problem.deadline_s) for times, most in WINDOWS]
    left_s = problem.deadline_s - np.tile(windows_s, (len(work.part_cost), 1))
    steps = np.maximum(work.steps_within(left_s, part[:, None]), 1)
    one = np.ones((1, problem.num_devices), dtype=np.int64)
    return np.append(part, len(work.part_cost) - 1), np.concatenate([steps, one])[:, None]


def _levels(problem: PlanProblem) -> tuple[Array, Array, Array]:
    """Returns (index, bits per weight, error) of the levels that may be chosen: those on the ladder's hull."""
    ladder = problem.ladder
    if ladder is None:
        per_weight = np.max(problem.bits_per_weight, keepdims=True)
        return np.zeros(1, dtype=np.int64), per_weight, np.zeros(1)
    return ladder.hull, ladder.bits_per_weight[ladder.hull], ladder.error[ladder.hull]


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedWork:
    """The chosen work of every device, and the choice it comes from.  Arrays [num_devices]

    Attributes:
      seconds: compute time.
      blocking: devices to drop so that an infeasible edge has a plan.
      min_deadline_s: the smallest deadline for which an edge has a plan.  [num_edges]
    """

    choice: Choice
    part: Array
    steps: Array
    level: Array
    seconds: Array
    blocking: Array
    min_deadline_s: Array


def plan_work(
    problem: PlanProblem,
    work: WorkModel,
    *,
    coverage: int = 0,
    rotate: bool = True,
    exact: bool = True,
    every_step: bool | None = None,
) -> PlannedWork:
    """Returns the best work of all devices.

    Args:
      coverage: devices of every edge that train the whole model, and so every layer, as far as the deadline allows.
      rotate: whether devices take turns where too few would choose to; else those whom it costs the least.
      exact: whether small edges are solved to the optimum.
      every_step: as for `work_options`; None: all numbers of steps, unless that is too many.
    """
    groups = problem.groups
    if every_step is None:
        every_step = len(work.part_cost) * int(work.most_steps.max()) * problem.num_devices <= _MOST_STEPS
    settings: dict[str, Any] = {"coverage": coverage, "rotate": rotate, "exact": exact, "every_step": every_step}
    chunks = _edge_chunks(groups)
    if len(chunks) == 1:
        return _plan_edges(problem, work, **settings)
    order = np.arange(problem.num_devices) if groups.order is None else groups.order
    choice, own = _Joined(), _Joined()
    for at in (order[chunk] for chunk in chunks):
        planned = _plan_edges(problem.subset(at), work.subset(at), **settings)
        choice.add(planned.choice, at, problem.num_devices)
        own.add(planned, at, problem.num_devices)
    return PlannedWork(choice=Choice(**choice.arrays()), **own.arrays())


class _Joined:
    """Joins the arrays of several values: those of edges one after the other, those of devices at their places."""

    def __init__(self) -> None:
        self._edges: dict[str, list[Array]] = {}
        self._devices: dict[str, Array] = {}

    def add(self, value: Any, at: Array, num_devices: int) -> None:
        for name in (field.name for field in fields(value) if field.name != "choice"):
            array = getattr(value, name)
            if name in _OF_EDGES:
                self._edges.setdefault(name, []).append(array)
            else:
                whole = self._devices.setdefault(name, np.empty(num_devices, dtype=array.dtype))
                whole[at] = array

    def arrays(self) -> dict[str, Array]:
        return {**self._devices, **{name: np.concatenate(parts) for name, parts in self._edges.items()}}


def _edge_chunks(groups: EdgeGroups) -> list[slice]:
    """Returns runs of whole edges, in the order of the groups, whose devices fit the processor's cache together."""
    ends = groups.starts + groups.counts
    chunks, start = [], 0
    while start < ends[-1]:
        last = max(int(np.searchsorted(ends, start + _CHUNK_DEVICES, side="right")) - 1, 0)
        stop = int(ends[last]) if ends[last] > start else int(ends[np.searchsorted(ends, start, side="right")])
        chunks.append(slice(start, stop))
        start = stop
    return chunks


def _plan_edges(
    problem: PlanProblem, work: WorkModel, *, coverage: int, rotate: bool, exact: bool, every_step: bool
) -> PlannedWork:
    options = work_options(problem, work, every_step=every_step)
    groups = problem.groups
    choice = choose_options(groups, options.share, options.value, exact=exact)
    if coverage:
        covered = _cover(problem, work, options, choice, coverage=coverage, rotate=rotate)
        if covered is not options:
            retried = choose_options(groups, covered.share, covered.value, exact=exact)
            choice = _where_it_fits(groups, retried, choice)
    return _chosen(options, choice, least_work(problem, work))


def _chosen(options: Options, choice: Choice, least: PlanProblem) -> PlannedWork:
    option = np.maximum(choice.option, 0)
    devices = np.arange(len(option))
    return PlannedWork(
        choice=choice,
        part=options.part[option],
        steps=options.steps[option, devices],
        level=options.level[option],
        seconds=options.seconds[option, devices],
        blocking=np.zeros(len(option), dtype=bool) if choice.fits.all() else blocking_devices(least),
        min_deadline_s=min_deadline_s(least),
    )


def _cover(
    problem: PlanProblem, work: WorkModel, options: Options, choice: Choice, *, coverage: int, rotate: bool
) -> Options:
    """Returns the options of edges with too few whole models restricted, so that `coverage` devices train it."""
    groups, devices = problem.groups, np.arange(problem.num_devices)
    is_whole = options.part == 0
    trains_all = is_whole[np.maximum(choice.option, 0)] & (choice.option >= 0)
    short = coverage - np.minimum(groups.sum(trains_all.astype(np.int64)), coverage)
    cheapest = options.share[is_whole].min(axis=0)
    can = np.isfinite(cheapest) & ~trains_all & (choice.option >= 0)
    if not short.any() or not can.any():
        return options
    if rotate:
        # From round to round the turn moves on by one device of each edge.
        place = groups.restore(np.arange(len(devices)) - groups.repeat(groups.starts))
        preference = (place - work.round_index) % groups.spread(groups.counts)
    else:
        price = groups.spread(choice.price)
        profit = _profits(options, price)
        preference = profit.max(axis=0) - profit[is_whole].max(axis=0)
    preference = np.where(can, preference, np.inf)
    edge = groups.spread(np.arange(groups.num_edges))
    order = np.lexsort((preference, edge))
    rank = np.empty(len(devices), dtype=np.int64)
    rank[order] = np.arange(len(devices)) - np.repeat(groups.starts, groups.counts)
    forced = trains_all | (can & (rank < short[edge]))
    forced &= (short > 0)[edge]
    share = np.where(forced & ~is_whole[:, None], np.inf, options.share)
    return replace(options, share=share)


def _where_it_fits(groups: EdgeGroups, first: Choice, second: Choice) -> Choice:
    """Returns the first choice on edges that have one, and the second elsewhere."""
    edges, devices = first.fits, groups.spread(first.fits)
    return Choice(
        **{
            name: np.where(devices, getattr(first, name), getattr(second, name))
            for name in ("option", "share", "value", "least")
        },
        **{name: np.where(edges, getattr(first, name), getattr(second, name)) for name in ("total", "bound", "price")},
    )


def least_work(problem: PlanProblem, work: WorkModel) -> PlanProblem:
    """Returns the problem of one step of the least part at the cheapest level, with nothing to choose.

    No option takes less time or fewer bits, so it decides which devices block an edge, and the smallest deadline.
    """
    _, bits_per_weight, _ = _levels(problem)
    return replace(
        problem,
        seconds_per_weight=0.0,
        extra_seconds=work.seconds(np.ones(problem.num_devices, dtype=np.int64), -1),
        bits_per_weight=0.0,
        fixed_bits=bits_per_weight[0] * work.part_weights[-1] + problem.fixed_bits,
        ladder=None,
        work=None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Worth:
    """The value that more of a resource would add.

    Attributes:
      per_bandwidth: value of one more unit of each edge's bandwidth: λ, by the envelope theorem.  [num_edges]
      per_second: value of each edge's next second of the deadline at the same work: Σ λ b / (T − c).  [num_edges]
      of_deadline: value that a longer deadline adds at today's price, with all options open.  [num_edges]
      of_cpu: value that a faster CPU adds, device by device, at today's price.  [num_devices]
    """

    per_bandwidth: Array
    per_second: Array
    of_deadline: Array
    of_cpu: Array


def worth(
    problem: PlanProblem, work: WorkModel, planned: PlannedWork, *, more_seconds: float = 1.0, faster: Any = 2.0
) -> Worth:
    """Returns shadow prices of a plan.

    λ is exact for the linear relaxation. A finite change is valued at today's price: Σ max(v − λ b) with it, less the
    same without. The relaxation's own gain is never more, since λ is one price that bounds it.

    Args:
      more_seconds: how much longer the deadline would be, for `of_deadline`.
      faster: factor of each device's CPU frequency, for `of_cpu`.  [num_devices] or one for all
    """
    price = problem.groups.spread(np.nan_to_num(planned.choice.price, nan=0.0))
    left_s = problem.deadline_s - planned.seconds
    now = _profit(problem, work, price)
    later = replace(problem, deadline_s=problem.deadline_s + more_seconds)
    factor = np.broadcast_to(np.asarray(faster, dtype=np.float64), (problem.num_devices,))
    quick = work.faster(factor)
    return Worth(
        per_bandwidth=planned.choice.price,
        per_second=problem.groups.sum(price * planned.choice.share / left_s),
        of_deadline=problem.groups.sum(_profit(later, work, price) - now),
        of_cpu=_profit(problem, quick, price) - now,
    )


def _profit(problem: PlanProblem, work: WorkModel, price: Array) -> Array:
    """Returns max over the options of v − λ b.  [num_devices]"""
    return np.asarray(_profits(work_options(problem, work), price).max(axis=0))


def _profits(options: Options, price: Array) -> Array:
    """Returns v − λ b of every option; −∞ for one that a device cannot have."""
    possible = np.isfinite(options.share)
    return np.where(possible, options.value - price * np.where(possible, options.share, 0.0), -np.inf)

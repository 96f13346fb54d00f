"""Devices whose updates reach their edge as one sum: which they are in a round, and what does not go with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import LocalComponent
from airprune.errors import InvalidValue
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.cohort import Cohort, CohortView
from airprune.methods.compression.base import Wire
from airprune.methods.masking.base import Masking
from airprune.methods.masking.whole import Whole
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.topology import Topology
from airprune.rounds.method import Method
from airprune.rounds.planning_context import PlannedRound
from airprune.rounds.secure import check_noise

if TYPE_CHECKING:
    from airprune.rounds.experiment import Experiment
    from airprune.rounds.state import Place
    from airprune.scenario import Scenario


def cohort_of(run: Experiment, at: Place, planned: PlannedRound, edge: int) -> Cohort | None:
    """Returns the planned devices of an edge that are summed together; None if each upload reaches it by itself."""
    aggregation = run.method.edge
    if not aggregation.overrides(Aggregation.cohort):
        return None
    here, prunable = planned.in_plan & (planned.edge == edge), run.shape.prunable_weights
    is_shared = planned.mask is not None and planned.mask.dtype == bool and planned.mask.shape == (prunable,)
    if not is_shared and np.any(planned.keep[here] < prunable):
        rule = f"must give all devices of an edge the same mask with aggregation {aggregation.name!r}"
        raise InvalidValue("Scenario.masking.name", rule, repr(run.method.masking.name), 'Example: "snip"')
    view = CohortView(
        devices=tuple(planned.device[here].tolist()),
        word_bits=run.scenario.plan.bits_per_weight,
        address=(run.scenario.seed, at.global_round, at.step, edge),
        snr=None if planned.snr is None else planned.snr[here],
    )
    cohort = aggregation.cohort(view)
    if isinstance(cohort, SecureCohort):
        check_noise(run.scenario.privacy, cohort)
    return cohort


def check_sums(scenario: Scenario, method: Method) -> None:
    """Raises one sentence where updates that reach an edge as one sum cannot be added up, or are needed one by one."""
    name = method.edge.name
    if method.cloud.overrides(Aggregation.cohort):
        rule = f"must not be {method.cloud.name!r}, which sums updates of devices at edges, not models at the cloud"
        raise InvalidValue("Scenario.aggregation.cloud", rule, repr(method.cloud.name), 'Example: "masked-mean"')
    if not method.edge.overrides(Aggregation.cohort):
        return
    for trouble in _troubles(scenario, method):
        rule, way_out = "must be another one " + trouble, 'Example: aggregation.edge = "masked-mean"'
        raise InvalidValue("Scenario.aggregation.edge", rule, repr(name), way_out)
    wire = Wire(value_bits=scenario.plan.bits_per_weight, num_weights=1_000_000, num_tensors=1)
    if not method.compression.exact(wire):
        rule = f"must be 'cast' (exact) with aggregation {name!r}, which encodes values itself"
        raise InvalidValue("Scenario.compression.name", rule, repr(method.compression.name), 'Example: "cast"')


def _troubles(scenario: Scenario, method: Method) -> list[str]:
    found, masking, topology = [], method.masking, method.topology
    prunes = method.scheme.adapts and scenario.plan.max_pruning_ratio > 0.0
    is_common = isinstance(masking, Whole) or masking.overrides(Masking.counts)  # others are seen when they upload
    if method.scheme.chooses_work or (prunes and not is_common):
        found.append(
            f"with scheme {method.scheme.name!r} and masking {masking.name!r}, whose devices send different weights"
        )
    if topology.overrides(Topology.relay) or topology.overrides(Topology.due):
        found.append(f"with topology {topology.name!r}, whose devices do not upload together")
    if scenario.aggregation.rollback is not None:
        found.append("with aggregation.rollback, which measures every update")
    for part in ("masking", "objective", "selection"):
        component: LocalComponent = getattr(method, part)
        if component.sends_reports:
            found.append(f"with {part} {component.name!r}, whose devices report more of their data than their update")
    return found

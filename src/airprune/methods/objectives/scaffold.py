"""SCAFFOLD: every local step is corrected by control variates against client drift.

    g ← ∇F + c − c_n
    after S steps of η:   c_n⁺ = c_n − c + (w_received − w_trained) / (η S)
    at the cloud:         c ← c + 1/N Σ (c_n⁺ − c_n)

On a tree, c is the cloud's: devices report c_n⁺ − c_n to their edges, which add them up over the edge rounds of a
global round; w_received is the edge's model.

The source has no momentum: S is the number of local steps. With momentum a gradient enters the update with more than
one η, and S is the sum ‖a‖₁ of these factors, as in FedNova: c_n⁺ is still a mean of the device's gradients. Adam's
steps are no sums of gradients, and are refused.
"""

from __future__ import annotations

import numpy as np

from airprune.components.component import ModelShape, Owner, ReportKind, Slot, parameters
from airprune.methods.objectives.base import Array, LocalRun, Memory, Objective, Values
from airprune.methods.outcome import GlobalOutcome, Outcome

OWN, COMMON, MOVED = "scaffold.own", "scaffold.common", "scaffold.moved"


class Scaffold(Objective):
    """Control variates: one of each device, one of all."""

    name = "scaffold"
    summary = "the loss with control variates against client drift; doubles the upload"
    source = "SCAFFOLD (Karimireddy et al. 2020), option II"
    broadcast = (COMMON,)
    plain_steps = True
    gradients = (MOVED,)

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        return (
            Slot(name=OWN, owner=Owner.DEVICE, shape=parameters),
            Slot(name=COMMON, owner=Owner.CLOUD, shape=parameters, dtype="<f8"),
            Slot(name=MOVED, owner=Owner.CLOUD, shape=parameters, dtype="<f8"),
        )

    def adjust(self, gradient: Array, weights: Array, received: Array, memory: Memory) -> None:
        gradient += memory[COMMON] - memory[OWN]

    def finish(self, run: LocalRun, memory: Memory) -> Values:
        """c_n⁺; what could not move keeps its c_n."""
        own = memory[OWN]
        before, after = run.received[: own.size].astype(np.float64), run.trained[: own.size]
        new = own - memory[COMMON] + (before - after) / (run.learning_rate * run.gradients)
        if run.moves is not None:
            new = np.where(run.moves, new, own)
        return {OWN: new.astype(own.dtype)}

    def report(self, run: LocalRun, before: Memory, after: Memory) -> Values:
        """c_n⁺ − c_n."""
        return {MOVED: after[OWN].astype(np.float64) - before[OWN]}

    def reported(self, shape: ModelShape) -> dict[str, ReportKind]:
        return {MOVED: ("<f8", parameters(shape))}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        return {MOVED: values[MOVED] + outcome.sums[MOVED]} if MOVED in outcome.sums else {}

    def after_global_round(self, outcome: GlobalOutcome, values: Values) -> Values:
        moved = values[MOVED]
        return {COMMON: values[COMMON] + moved / outcome.num_devices, MOVED: np.zeros_like(moved)}

    def upload_bits(self, shape: ModelShape, value_bits: float) -> float:
        """As many values as the model has weights: uploads are twice as large."""
        return value_bits * shape.num_weights

"""Plans and averages the rounds of a method at one server, for an app whose clients are Flower's.

What a client does is the app's own: its loop, its loss, its data. The server's part of a method is ours: which devices
are selected, the share of their weights and the bits that the network has time for, the average of each weight over
those that sent it, and the server optimiser. Nothing here imports Flower.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from airprune.components.component import ModelShape, Owner, paper_shape
from airprune.errors import InvalidValue, UsageError
from airprune.flower.budget import Arrays, Budget, FlatArrays
from airprune.methods import METHODS
from airprune.methods.masking.base import Charges
from airprune.rounds.compute_times import ComputeTimes, compute_times
from airprune.rounds.edge import close_round, select_and_plan
from airprune.rounds.method import Method
from airprune.rounds.planning_context import PlannedRound, PlanningContext
from airprune.rounds.stations import Stations
from airprune.scenario import Scenario
from airprune.wireless.network import Network

Array = np.ndarray

PRUNES_NOTHING = ("no-pruning", "equal-codes")
"""Schemes with which every masking keeps every weight."""
AVERAGES = ("masked-mean", "data-weighted")


@dataclass(frozen=True, kw_only=True, eq=False)
class AppContext(PlanningContext):
    """Settings of planning for clients that send all they are charged, and train whole models.

    Attributes:
      rest_bits: of biases and buffers, which travel beside the weights.
    """

    rest_bits: float = 0.0

    def charges(self, round_index: int) -> Charges:
        """Returns the charges with the rest; both ends know which weights are sent, so that takes no bits."""
        charged = super().charges(round_index)
        return replace(charged, uplink_bits=0.0, always_bits=charged.always_bits + self.rest_bits)


@dataclass(frozen=True)
class Reply:
    """The model that the server received from one device.

    Attributes:
      mask: which weights it has sent; None: all.  [num_prunable] bool
    """

    device: int
    arrays: Arrays
    mask: Array | None
    num_samples: float


@dataclass(eq=False)
class OneServer:
    """The server's part of a method, from round to round.

    Attributes:
      model: the model at the start, for its layout.
      num_samples: of each device, as its last reply has it; 1 before.  [num_devices]
      values: slots of the server optimiser.
      channel: the same of the channel.
    """

    scenario: Scenario
    model: Arrays
    num_samples: Array = field(init=False)
    values: dict[str, Array] = field(init=False)
    channel: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        check_at_one_server(self.scenario)
        self.num_samples = np.ones(self.network.num_devices)
        self.values = {slot.name: slot.row(self.shape) for slot in self.method.slots(self.shape) if _of_cloud(slot)}
        fading = {slot.name: slot.row(self.shape) for slot in self.method.channel.slots(self.shape)}
        self.channel = fading | self._stations.initial_values

    @cached_property
    def method(self) -> Method:
        return Method.of(self.scenario)

    @cached_property
    def network(self) -> Network:
        return self.scenario.build_network()

    @cached_property
    def flat(self) -> FlatArrays:
        return FlatArrays.of(self.model)

    @cached_property
    def shape(self) -> ModelShape:
        return self.flat.shape.on(num_devices=self.network.num_devices, num_edges=self.network.num_edges)

    @cached_property
    def context(self) -> AppContext:
        plan, layers, shape = self.scenario.plan, self.flat.layout.layers, self.shape
        rest = [array for name, array in self.model.items() if name not in {layer.name for layer in layers}]
        return AppContext(
            plan=plan,
            clock=self.scenario.clock,
            radio=self.scenario.build_radio(),
            method=self.method,
            shape=shape,
            wire=self.flat.wire(),
            compute=self._compute,
            max_pruning_ratio=min(plan.max_pruning_ratio, 1.0 - layers.num_rows / layers.num_weights),
            min_pruning_ratio=plan.min_pruning_ratio,
            rest_bits=8.0 * sum(array.nbytes for array in rest),
        )

    @property
    def _compute(self) -> ComputeTimes:
        """Compute times of whole models, whatever is sent: the loop of an app knows no mask."""

        def unknown() -> Any:
            rule = 'must be "paper" for a Flower strategy, since the FLOPs of an app are not known'
            way_out = "Measured times go into the device table, as seconds_per_sample"
            raise InvalidValue("Scenario.clock.compute", rule, self.scenario.clock.compute, way_out)

        times = compute_times(
            self.scenario,
            self.method.masking,
            shape=self.shape,
            num_samples=np.ones(self.network.num_devices),
            cpu_hz=self.network.cpu_hz,
            work=unknown,
            seconds_per_sample=self.network.seconds_per_sample,
        )
        return replace(times, dense_share=1.0)

    @cached_property
    def _stations(self) -> Stations:
        return Stations(
            network=self.network,
            radio=self.context.radio,
            context=self.context,
            level=self.method.topology.build(np.array([1])).levels[-1],
            model_bits=0.0,
            data_sizes=self.num_samples,
            seed=self.scenario.seed,
            motion=self.scenario.build_motion(self.network, self.context.radio),
        )

    def plan(self, round_index: int, present: Sequence[int]) -> PlannedRound:
        """Selects among the devices that are present, and plans their round; once per round."""
        served, self.channel = self._stations.served(self.channel, round_index, starts=True)
        candidates = self._stations.candidates(served, np.array([0]), round_index, {}, self.channel)
        here = np.isin(candidates.device, np.asarray(present))
        arrays = ("device", "edge", "num_samples")
        candidates = replace(candidates, **{name: getattr(candidates, name)[here] for name in arrays})
        return select_and_plan(self.context, candidates, self.network.cpu_hz[candidates.device], round_index)

    def budgets(self, round_index: int, present: Sequence[int]) -> dict[int, Budget]:
        """Returns the budget of each selected device of those present; a device that the plan excludes has none."""
        planned = self.plan(round_index, present)
        compression = self.method.compression
        options = json.dumps({"name": compression.name, **compression.model_dump(mode="json")})
        found: dict[int, Budget] = {}
        for place in np.flatnonzero(planned.in_plan).tolist():
            device = int(planned.device[place])
            code = -1 if planned.code is None else int(planned.code[place])
            weights = max(self.shape.fixed_weights + int(planned.keep[place]), 1)
            update_bits = self.context.update_bits(None if code < 0 else code, weights)
            found[device] = Budget(
                kept_share=int(planned.keep[place]) / self.shape.prunable_weights,
                bits=max(round(update_bits / weights), 1),
                deadline_s=planned.deadline_s,
                device=device,
                compression=options,
                code=code,
                coded=True,
            )
        return found

    def average(self, previous: Arrays, replies: Sequence[Reply]) -> dict[str, Array]:
        """Returns the next model: the mean of each weight over those that sent it, Eq. (12), and the server's step.

        A weight that no device sent keeps its value. Arrays of whole numbers are averaged and rounded.
        """
        flat, rule = self.flat, self.method.edge
        total = rule.Sum.zeros(self.shape.num_state, self.shape.prunable)
        samples = np.array([reply.num_samples for reply in replies])
        factors = rule.weights(samples)
        for reply, factor in zip(replies, factors.tolist(), strict=True):
            self.num_samples[reply.device] = max(reply.num_samples, 1.0)
            state = flat.flat(reply.arrays)
            if reply.mask is not None:
                state[self.shape.prunable] *= reply.mask
            total.add(state, reply.mask, factor)
        before = flat.flat(previous)
        combined = rule.finish(total, before)
        model, moved = close_round(
            self.method.cloud_step,
            "cloud_step",
            before,
            combined,
            total.sent_by > 0,
            self.values,
            num_parameters=self.shape.num_parameters,
        )
        self.values |= moved
        found = flat.arrays(model, previous)
        for name, array in previous.items():
            if name not in found:
                mean = np.average([reply.arrays[name] for reply in replies], axis=0, weights=factors)
                found[name] = np.asarray(np.rint(mean)).astype(array.dtype)
        return {name: found[name] for name in previous}


def _of_cloud(slot: Any) -> bool:
    return slot.owner is Owner.CLOUD


def scenario_of(method: str, scenario: Scenario | None, values: Mapping[str, Any], num_devices: int) -> Scenario:
    """Returns the scenario with the method's settings and these; without one, a cell of the paper with all devices."""
    cell = {"network.num_edges": 1, "network.devices_per_edge": num_devices} if scenario is None else {}
    return (scenario or Scenario()).with_values({**cell, "method": method, "rounds.edge_rounds": 1, **values})


def check_method_at_one_server(name: str, values: Mapping[str, Any]) -> None:
    """Raises a sentence that names the methods that work, if this one does not."""
    if reason := _why_not_method(name, values):
        raise UsageError(
            f"ap.flower.Strategy cannot run the method {name!r}: {reason}; these work: {', '.join(working_methods())}."
        )


def _why_not_method(name: str, values: Mapping[str, Any]) -> str:
    """Returns why a method cannot run, with these settings; empty if it can."""
    of_clients = [key for key in METHODS[name].settings if key.startswith("train.")]
    reason = why_not(scenario_of(name, None, values, 2))
    if of_clients and not reason:
        return f"it sets {', '.join(of_clients)}, which is up to the app"
    return reason


def check_at_one_server(scenario: Scenario) -> None:
    """Raises if the scenario has several stations, or a method that needs more than a server."""
    if not scenario.is_flat and (count := scenario.build_network().num_edges) > 1:
        way_out = 'Or set topology.name = "flat": one bandwidth for all devices'
        raise InvalidValue("Scenario.network.num_edges", "must be 1 for a Flower strategy", count, way_out)
    if reason := why_not(scenario):
        raise UsageError(f"ap.flower.Strategy cannot run this scenario: {reason}.")


def working_methods() -> list[str]:
    """Returns the methods whose server's part is all that they need."""
    return _working(tuple(METHODS))


@cache
def _working(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not _why_not_method(name, {})]


def why_not(scenario: Scenario) -> str:
    """Returns why a method needs more than a server and clients of its own kind; empty if it does not."""
    method = Method.of(scenario)
    shape = paper_shape()
    on_devices = [slot.name for slot in method.slots(shape) if slot.owner is Owner.DEVICE]
    masks = method.masking
    reasons = {
        f"its topology {method.topology.name!r} has edges or waits for none": method.topology.name
        not in ("flat", "hierarchical"),
        f"its association {method.association.name!r} chooses among edges": method.association.name != "fixed",
        "it compresses the uploads of edges": method.backhaul.name != "cast",
        f"its devices keep {', '.join(on_devices)}": bool(on_devices),
        f"its objective {method.objective.name!r} changes the loop of the app": method.objective.name
        not in ("plain", "prox"),
        f"its scheme {method.scheme.name!r} chooses the work or the power of devices": method.scheme.chooses_work
        or method.scheme.chooses_codes
        or method.scheme.needs_limits
        or method.scheme.blocks(2) is not None,
        f"its selection {method.selection.name!r} keeps statistics of devices": bool(method.selection.slots(shape)),
        f"its averages {method.edge.name!r} are of another kind": method.edge.name not in AVERAGES,
        "it moves edges by a server optimiser of their own": method.edge_step.name != "replace",
        f'its masks {masks.name!r} need more than the model (masking.name = "magnitude-rechosen" does not)': (
            method.scheme.name not in PRUNES_NOTHING and masks.name not in ("whole", "magnitude-rechosen")
        ),
        "its pruning follows a schedule": getattr(masks, "sparsity", 0.0) > 0.0,
        "its local steps decay": scenario.train.steps_decay != "none",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")

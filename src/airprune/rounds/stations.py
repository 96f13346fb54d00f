"""Association of devices with stations, and their channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np

from airprune.errors import InvalidValue
from airprune.methods.association.base import AssociationView, Served
from airprune.methods.selection.base import Candidates
from airprune.methods.topology import Level
from airprune.planning import Interference, Plan, PlanProblem
from airprune.randomness import rng_for
from airprune.rounds.planning_context import PlanningContext, device_limits, plan_problem
from airprune.wireless.channel import Radio, gains_to_stations, large_scale_gain, snr
from airprune.wireless.channels.base import Channel, FadingView, block_gains, link_rates_bps
from airprune.wireless.network import Network

Array = np.ndarray
Values = dict[str, Array]

# Reserved names among a run's values: the association, where it changes, and the fading of a channel with slots.
_EDGE, _GAIN, _FADING = "served/edge", "served/gain", "served/fading"


@dataclass(frozen=True, kw_only=True, eq=False)
class Stations:
    """The stations of a run and the devices around them; what changes of it is among the run's values.

    Attributes:
      level: of the stations in the tree.
      model_bits: of a whole model on their links, both ways where the way down is charged.
      data_sizes: D_n.  [num_devices]
    """

    network: Network
    radio: Radio
    context: PlanningContext
    level: Level
    model_bits: float
    data_sizes: Array
    seed: int

    @property
    def initial_values(self) -> Values:
        """Values that a run starts with, where the association changes or fading has slots."""
        values: Values = {}
        if not self._decided_once:
            values |= {_EDGE: self.network.edge.copy(), _GAIN: self._own_gain.copy()}
        if self._fading_has_slots:
            values[_FADING] = np.zeros(self.network.num_devices)
        return values

    def serving(self, values: Values) -> Array:
        """Returns the station of each device in the edge round at hand.  [num_devices]"""
        return self._always.edge if self._decided_once else values[_EDGE]

    def served(self, values: Values, round_index: int, *, starts: bool) -> tuple[Served, Values]:
        """Returns (the association of the edge round to come, the run's values); decided anew where it changes.

        The fading of the round is among the values where the channel has slots.

        Args:
          starts: whether a global round begins.
        """
        if self._fading_has_slots:
            fading, changed = self._channel.small_scale(self._fading_view(round_index), values)
            values = values | changed | {_FADING: fading}
        if self._decided_once:
            return self._always, values
        if self.context.method.association.when == "global" and not starts:
            return Served(edge=values[_EDGE], gain=values[_GAIN]), values
        served, values = self._decide(values, round_index)
        return served, values | {_EDGE: served.edge, _GAIN: served.gain}

    def candidates(
        self, served: Served, edges: Array, round_index: int, memory: Mapping[str, Array], values: Values
    ) -> Candidates:
        """The devices of these edges as known before planning.

        Args:
          memory: the slots of the selection, the weighting and the scheme.
          values: the run's, as `served` returned them.
        """
        device = np.flatnonzero(np.isin(served.edge, edges))
        true_bps = partial(self._rates_bps, served.gain, cache(partial(self._fading, round_index, values)))
        known = cache(partial(self._known_fading, round_index, values))
        known_bps = partial(self._rates_bps, served.gain, known)
        return Candidates(
            device=device,
            edge=served.edge[device],
            rates_bps=true_bps if self.radio.knows_fading else known_bps,
            interference=None if self.radio.reuse is None else partial(self._interference, served, known),
            true_rates_bps=None if self.radio.knows_fading else true_bps,
            num_samples=self.data_sizes[device],
            round_index=round_index,
            rng=rng_for(self.seed, "selection", round_index),
            memory=memory,
            block_rates_bps=partial(self._block_rates_bps, served.gain, round_index),
            device_names=self.network.device_names,
            edge_names=self.network.edge_names,
        )

    def view(self, round_index: int) -> AssociationView:
        """Returns the view of an association."""
        return AssociationView(
            network=self.network,
            own_gain=self._own_gain,
            gains=lambda: self._gains,
            problem=partial(self._problem_on_links, round_index),
            plan=self._plan_on_links,
            rounds=self.level.rounds,
            link_s=self.model_bits / self.level.rate_bps,
            round_index=round_index,
            rng=rng_for(self.seed, "association", round_index),
        )

    @property
    def _decided_once(self) -> bool:
        return self.context.method.association.when == "run"

    @cached_property
    def _always(self) -> Served:
        served, _ = self._decide({}, 0)
        return served

    def _decide(self, values: Values, round_index: int) -> tuple[Served, Values]:
        return self.context.method.association.decide(self.view(round_index), values)

    @cached_property
    def _own_gain(self) -> Array:
        return large_scale_gain(self.network, self.radio, seed=self.seed, gain_of=self._channel.large_scale)

    @cached_property
    def _gains(self) -> Array:
        return gains_to_stations(self.network, self.radio, seed=self.seed, gain_of=self._channel.large_scale)

    def _problem_on_links(self, round_index: int, device: Array, station: Array, band: Array) -> PlanProblem:
        """Implements `AssociationView.problem`."""
        rates_bps = link_rates_bps(
            self._channel, self._gains[device, station], float(self.radio.num_antennas), self.radio
        )
        cpu_hz = self.network.cpu_hz[device]
        candidates = Candidates(
            device=device,
            edge=band,
            rates_bps=lambda _: rates_bps,
            num_samples=self.data_sizes[device],
            round_index=round_index,
            rng=rng_for(self.seed, "association", round_index),
        )
        problem = plan_problem(self.context, candidates, cpu_hz, self.context.charges(round_index))
        return replace(problem, limits=device_limits(self.context, cpu_hz))

    def _plan_on_links(self, problem: PlanProblem) -> Plan:
        """Plans as a round would: limits are shown to the scheme only where the scenario has them."""
        scheme = self.context.method.scheme
        if self.context.has_limits:
            return scheme.plan(problem)
        return replace(scheme.plan(replace(problem, limits=None)), problem=problem)

    @property
    def _channel(self) -> Channel:
        return self.context.method.channel

    @cached_property
    def _fading_has_slots(self) -> bool:
        return bool(self._channel.slots(self.context.shape))

    def _fading_view(self, round_index: int) -> FadingView:
        return FadingView(
            num_devices=self.network.num_devices,
            radio=self.radio,
            seed=self.seed,
            round_index=round_index,
            on_time=self.context.plan.on_time,
        )

    def _fading(self, round_index: int, values: Values) -> Array:
        if self._fading_has_slots:
            return values[_FADING]
        return self._channel.small_scale(self._fading_view(round_index), {})[0]

    def _known_fading(self, round_index: int, values: Values) -> Array:
        known = self._channel.known(self._fading_view(round_index), values)
        return self._fading(round_index, values) if known is None else known

    def cloud_rates_bps(self, round_index: int, values: Values) -> Array:
        """Returns r_n of every device to the cloud, with the fading of its link to its station.  [num_devices]"""
        flat = self.network.flat()
        gain = large_scale_gain(flat, self.radio, seed=self.seed, gain_of=self._channel.large_scale)
        return link_rates_bps(self._channel, gain, self._fading(round_index, values), self.radio)

    def _rates_bps(self, gain: Array, fading: Callable[[], Array], device: Array) -> Array:
        """Implements `Candidates.rates_bps`."""
        return link_rates_bps(self._channel, gain[device], fading()[device], self.radio)

    def _interference(self, served: Served, fading: Callable[[], Array], device: Array) -> Interference:
        """Implements `Candidates.interference`: own links with fading, those to other stations without."""
        stations, edge = np.arange(self.network.num_edges), served.edge[device]
        shared = ((stations - edge[:, np.newaxis]) % (self.radio.reuse or 1) == 0) & (stations != edge[:, np.newaxis])
        return Interference(
            snr=snr(served.gain[device] * fading()[device], self.radio),
            heard=np.where(shared, snr(self._gains[device], self.radio), 0.0),
            rate_bps=partial(self._channel.rate_bps, radio=self.radio),
        )

    def _block_rates_bps(self, gain: Array, round_index: int, device: Array, num_blocks: int) -> Array:
        """Implements `Candidates.block_rates_bps`."""
        if not self.radio.knows_fading:
            rule = f"must be 1 with scheme {self.context.method.scheme.name!r}, which knows the fading of every block"
            raise InvalidValue("Scenario.radio.csi_correlation", rule, self.radio.csi_correlation)
        fading = block_gains(self._channel, self._fading_view(round_index), num_blocks)
        return link_rates_bps(self._channel, gain[device, np.newaxis], fading[device], self.radio)

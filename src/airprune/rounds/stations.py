"""Association of devices with stations, and their channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial

import numpy as np

from airprune.errors import InvalidValue
from airprune.methods.association.base import AssociationView, Served
from airprune.methods.selection.base import Candidates
from airprune.methods.topology import Level
from airprune.planning import Interference, Plan, PlanProblem
from airprune.randomness import rng_for
from airprune.rounds.over_the_air import rate_over_the_air_bps
from airprune.rounds.planning_context import PlanningContext, device_limits, plan_problem
from airprune.wireless.channel import LinkGain, Radio, gains_to_stations, large_scale_gain, sent_gain, sent_power_w, snr
from airprune.wireless.channels.base import (
    Channel,
    FadingView,
    block_gains,
    known_fading,
    link_gains,
    link_rates_bps,
    rates_at_snr_bps,
    round_fading,
)
from airprune.wireless.mimo import mimo_groups, zero_forcing_gain
from airprune.wireless.motion import Motion
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
      motion: movement of devices; None: they stay, and so do their gains.
    """

    network: Network
    radio: Radio
    context: PlanningContext
    level: Level
    model_bits: float
    data_sizes: Array
    seed: int
    motion: Motion | None = None

    @property
    def initial_values(self) -> Values:
        """Values that a run starts with, where the association changes or fading has slots."""
        values: Values = {}
        if not self._decided_once:
            values |= {_EDGE: self.network.edge.copy(), _GAIN: self._own_gain_at(0.0).copy()}
        if self._fading_has_slots:
            values[_FADING] = np.zeros(self.network.num_devices)
        return values

    def serving(self, values: Values) -> Array:
        """Returns the station of each device in the edge round at hand.  [num_devices]"""
        return self._always.edge if self._decided_once else values[_EDGE]

    def served(self, values: Values, round_index: int, *, starts: bool, time_s: float = 0.0) -> tuple[Served, Values]:
        """Returns (the association of the edge round to come, the run's values); decided anew where it changes.

        The fading of the round is among the values where the channel has slots.

        Args:
          starts: whether a global round begins.
          time_s: of the run's clock, at which moving devices are where they are.
        """
        if self._fading_has_slots:
            fading, changed = round_fading(self._channel, self._fading_view(round_index, time_s), values)
            values = values | changed | {_FADING: fading}
        if self._decided_once:
            return self._now(self._always, time_s), values
        if self.context.method.association.when == "global" and not starts:
            return self._now(Served(edge=values[_EDGE], gain=values[_GAIN]), time_s), values
        served, values = self._decide(values, round_index, time_s)
        served = self._now(served, time_s)
        return served, values | {_EDGE: served.edge, _GAIN: served.gain}

    def _now(self, served: Served, time_s: float) -> Served:
        """Returns the association with the gains of this time, where devices move."""
        if self.motion is None:
            return served
        gain = self._gains_at(time_s)[np.arange(self.network.num_devices), served.edge]
        return replace(served, gain=gain)

    def candidates(
        self,
        served: Served,
        edges: Array,
        round_index: int,
        memory: Mapping[str, Array],
        values: Values,
        time_s: float = 0.0,
    ) -> Candidates:
        """The devices of these edges as known before planning.

        Args:
          memory: the slots of the selection, the weighting and the scheme.
          values: the run's, as `served` returned them.
          time_s: as of `served`.
        """
        device, view = np.flatnonzero(np.isin(served.edge, edges)), self._fading_view(round_index, time_s)
        fading = cache(partial(self._fading, view, values))
        true_bps = partial(self._rates_bps, served.gain, fading)
        known = cache(partial(self.known_fading, round_index, values, self.context.reserve.link, time_s))
        known_bps = partial(self._rates_bps, served.gain, known)
        return Candidates(
            device=device,
            edge=served.edge[device],
            rates_bps=true_bps if self.radio.knows_fading else known_bps,
            power_w=None if self.radio.power_p0_w is None else lambda some: sent_power_w(served.gain[some], self.radio),
            at_once=self._senders_at_once(served, view, values),
            snr=lambda some: snr(sent_gain(served.gain[some], self.radio) * fading()[some], self.radio),
            interference=None
            if self.radio.reuse is None
            else partial(self._interference, served, time_s, partial(self._fading_heard, served, view, values, known)),
            true_rates_bps=None if self.radio.knows_fading else true_bps,
            num_samples=self.data_sizes[device],
            round_index=round_index,
            rng=rng_for(self.seed, "selection", round_index),
            memory=memory,
            block_rates_bps=partial(self._block_rates_bps, served.gain, view),
            device_names=self.network.device_names,
            edge_names=self.network.edge_names,
        )

    def view(self, round_index: int, time_s: float = 0.0) -> AssociationView:
        """Returns the view of an association."""
        return AssociationView(
            network=self.network,
            own_gain=self._own_gain_at(time_s),
            gains=lambda: self._gains_at(time_s),
            problem=partial(self._problem_on_links, round_index, time_s),
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

    def _decide(self, values: Values, round_index: int, time_s: float = 0.0) -> tuple[Served, Values]:
        return self.context.method.association.decide(self.view(round_index, time_s), values)

    @cached_property
    def _own_gain(self) -> Array:
        return large_scale_gain(self.network, self.radio, seed=self.seed, gain_of=self._link_gains)

    @cached_property
    def _gains(self) -> Array:
        return gains_to_stations(self.network, self.radio, seed=self.seed, gain_of=self._link_gains)

    def _gains_at(self, time_s: float) -> Array:
        """Returns the gains to every station at a time.  [num_devices, num_edges]"""
        return self._gains if self.motion is None else self._moving(time_s)

    def _own_gain_at(self, time_s: float) -> Array:
        """Returns the gains to the stations that the network has for each device."""
        if self.motion is None:
            return self._own_gain
        return self._moving(time_s)[np.arange(self.network.num_devices), self.network.edge]

    @cached_property
    def _moving(self) -> Callable[[float], Array]:
        """Gains of moving devices; those of the last time are kept."""
        motion = self.motion
        assert motion is not None
        return lru_cache(maxsize=1)(lambda time_s: motion.gains(time_s, self._link_gains))

    def _problem_on_links(
        self, round_index: int, time_s: float, device: Array, station: Array, band: Array
    ) -> PlanProblem:
        """Implements `AssociationView.problem`."""
        rates_bps = link_rates_bps(
            self._channel, self._gains_at(time_s)[device, station], float(self.radio.num_antennas), self.radio
        )
        cpu_hz, air_bps = self.network.cpu_hz[device], rate_over_the_air_bps(self.context)
        candidates = Candidates(
            device=device,
            edge=band,
            rates_bps=lambda _: rates_bps,
            at_once=None if air_bps is None else lambda _: (band, np.full(len(band), air_bps)),
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

    @property
    def _link_gains(self) -> LinkGain:
        return partial(link_gains, self._channel)

    @cached_property
    def _fading_has_slots(self) -> bool:
        return bool(self._channel.slots(self.context.shape))

    def _fading_view(self, round_index: int, time_s: float = 0.0) -> FadingView:
        return FadingView(
            num_devices=self.network.num_devices,
            radio=self.radio,
            seed=self.seed,
            round_index=round_index,
            time_s=time_s,
            on_time=self.context.reserve.link,
        )

    def _fading(self, view: FadingView, values: Values) -> Array:
        if self._fading_has_slots:
            return values[_FADING]
        return round_fading(self._channel, view, {})[0]

    def known_fading(self, round_index: int, values: Values, on_time: float | None, time_s: float = 0.0) -> Array:
        """Returns the fading that plans count on that are to hold with a probability; None: the mean.  [num_devices]"""
        view = replace(self._fading_view(round_index, time_s), on_time=on_time)
        known = known_fading(self._channel, view, values)
        return self._fading(view, values) if known is None else known

    def cloud_rates_bps(self, round_index: int, values: Values, time_s: float = 0.0) -> Array:
        """Returns r_n of every device to the cloud, with the fading of its link to its station.  [num_devices]"""
        flat = self.network.flat()
        gain = large_scale_gain(flat, self.radio, seed=self.seed, gain_of=self._link_gains)
        fading = self._fading(self._fading_view(round_index, time_s), values)
        return link_rates_bps(self._channel, gain, fading, self.radio)

    def _rates_bps(self, gain: Array, fading: Callable[[], Array], device: Array) -> Array:
        """Implements `Candidates.rates_bps`."""
        return link_rates_bps(self._channel, gain[device], fading()[device], self.radio)

    def _senders_at_once(
        self, served: Served, view: FadingView, values: Values
    ) -> Callable[[Array], tuple[Array, Array]] | None:
        """Returns `Candidates.at_once`: groups of MU-MIMO, or whole edges that send over the air."""
        air_bps = rate_over_the_air_bps(self.context)
        if air_bps is not None:
            return lambda some: (served.edge[some], np.full(len(some), air_bps))
        return partial(self._at_once, served, view, values) if self.radio.num_streams > 1 else None

    def _at_once(self, served: Served, view: FadingView, values: Values, device: Array) -> tuple[Array, Array]:
        """Implements `Candidates.at_once`."""
        group, fading = self._zero_forced(served, view, values, device)
        return group, link_rates_bps(self._channel, served.gain[device], fading, self.radio)

    def _zero_forced(self, served: Served, view: FadingView, values: Values, device: Array) -> tuple[Array, Array]:
        """Returns (the group of each device, its fading after zero forcing).  [len(device)] each"""
        antennas = self._channel.antennas(view, values)
        if antennas is None:
            rule = f"must be 1 with channel {self._channel.name!r}, which has no fading of single antennas"
            raise InvalidValue("Scenario.radio.num_streams", rule, self.radio.num_streams)
        group = mimo_groups(antennas[device], served.gain[device], served.edge[device], self.radio.num_streams)
        return group, zero_forcing_gain(antennas[device], group)

    def _fading_heard(
        self, served: Served, view: FadingView, values: Values, known: Callable[[], Array], device: Array
    ) -> Array:
        """Returns the fading of devices as their station hears them: alone, or beside the others of their groups."""
        if self.radio.num_streams > 1:
            return self._zero_forced(served, view, values, device)[1]
        return known()[device]

    def _interference(
        self, served: Served, time_s: float, fading: Callable[[Array], Array], device: Array
    ) -> Interference:
        """Implements `Candidates.interference`: own links with fading, those to other stations without."""
        stations, edge = np.arange(self.network.num_edges), served.edge[device]
        shared = ((stations - edge[:, np.newaxis]) % (self.radio.reuse or 1) == 0) & (stations != edge[:, np.newaxis])
        power = sent_power_w(served.gain[device], self.radio) / self.radio.transmit_power_w
        return Interference(
            snr=snr(sent_gain(served.gain[device], self.radio) * fading(device), self.radio),
            heard=np.where(shared, snr(self._gains_at(time_s)[device], self.radio) * power[:, np.newaxis], 0.0),
            rate_bps=partial(rates_at_snr_bps, self._channel, radio=self.radio),
        )

    def _block_rates_bps(self, gain: Array, view: FadingView, device: Array, num_blocks: int) -> Array:
        """Implements `Candidates.block_rates_bps`."""
        if not self.radio.knows_fading:
            rule = f"must be 1 with scheme {self.context.method.scheme.name!r}, which knows the fading of every block"
            raise InvalidValue("Scenario.radio.csi_correlation", rule, self.radio.csi_correlation)
        fading = block_gains(self._channel, view, num_blocks)
        return link_rates_bps(self._channel, gain[device, np.newaxis], fading[device], self.radio)

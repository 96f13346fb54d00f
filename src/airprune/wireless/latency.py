"""Latency and energy of a round, Eqs. (4), (6), (9), (11), (14)–(16), and of the downlink before it.

All functions broadcast over devices. Weights, cycles and bits are counts and may be fractional: the
planner's optimum is, before it is rounded down to whole weights. Times may be infinite: a device
without bandwidth never finishes. The formulas that a plan is checked by, Eqs. (6), (11), (14), take any
number, since a `PlanProblem` has checked its own: NaN (no plan) stays NaN, and the printed Theorem 3 may
well ask for the latency of a negative share.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from airprune.checks import FloatArray, quantity, whole_number
from airprune.errors import InvalidValue

EFFECTIVE_CAPACITANCE = 1e-28  # kappa in W s^3: 2.7 W at 3 GHz, a usual value for phones


def fc_weight_count(layer_sizes: Sequence[int]) -> int:
    """W_fully = sum_l N_l N_{l+1}, the second term of Eq. (4); biases are not counted.

    `layer_sizes` starts with the flattened input: (3136, 8, 10) are two weight matrices. The paper
    calls L the number of layers, yet its sum has L - 1 terms, so its N_l are sizes, input included.
    """
    sizes = [whole_number("fc_weight_count.layer_sizes", size, at_least=1) for size in layer_sizes]
    if len(sizes) == 1:
        raise InvalidValue(
            "fc_weight_count.layer_sizes",
            "must be empty or have at least two sizes",
            sizes,
            "Start with the flattened input: (3136, 8, 10)",
        )
    return sum(n_in * n_out for n_in, n_out in itertools.pairwise(sizes))


def total_weights(conv_weights: int, layer_sizes: Sequence[int]) -> int:
    """W = W_conv + W_fully, Eq. (4)."""
    return whole_number("total_weights.conv_weights", conv_weights) + fc_weight_count(layer_sizes)


def kept_weights(pruning_ratio: ArrayLike, *, conv_weights: ArrayLike, fc_weights: ArrayLike) -> FloatArray:
    """W_rho = W_conv + (1 - rho) W_fully, Eq. (6).

    rho is the share *removed*; only fully-connected weights are removed, so rho = 1 still costs W_conv.
    """
    return np.asarray(conv_weights) + (1.0 - np.asarray(pruning_ratio, dtype=np.float64)) * np.asarray(fc_weights)


def seconds_per_weight(*, local_iterations: ArrayLike, cycles_per_weight: ArrayLike, cpu_hz: ArrayLike) -> FloatArray:
    """a_n = T C_n / f_n, the slope of Eq. (9) in the number of weights.

    local_iterations T, cycles_per_weight C_n (per iteration), cpu_hz f_n. C_n = 0 means free compute.
    """
    iterations = quantity("seconds_per_weight.local_iterations", local_iterations, at_least=0.0)
    cycles = quantity("seconds_per_weight.cycles_per_weight", cycles_per_weight, at_least=0.0)
    frequency = quantity("seconds_per_weight.cpu_hz", cpu_hz, above=0.0, way_out="Example: cpu_hz = 3e9")
    return iterations * cycles / frequency


def compute_time_s(
    weights: ArrayLike, *, local_iterations: ArrayLike, cycles_per_weight: ArrayLike, cpu_hz: ArrayLike
) -> FloatArray:
    """T_cmp = T C_n W_rho / f_n, Eq. (9).

    The paper charges C_n per weight and iteration whatever the batch size; C_n has to include it.
    """
    slope = seconds_per_weight(local_iterations=local_iterations, cycles_per_weight=cycles_per_weight, cpu_hz=cpu_hz)
    return slope * quantity("compute_time_s.weights", weights, at_least=0.0)


def uplink_time_s(
    weights: ArrayLike, rate_bps: ArrayLike, *, bits_per_weight: ArrayLike, fixed_bits: ArrayLike = 0.0
) -> FloatArray:
    """T_up = (q-hat W_rho + e) / R, Eq. (11) with e = 0.

    Differs from Eq. (11) by the bits e that do not grow with the model, such as a mask or scales, and at R = 0,
    where it divides by zero: nothing to send takes no time, anything else an infinite time.
    """
    bits = np.asarray(bits_per_weight) * np.asarray(weights, dtype=np.float64) + np.asarray(fixed_bits)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(bits == 0.0, 0.0, bits / np.asarray(rate_bps))[()]


def device_latency_s(
    weights: ArrayLike,
    *,
    seconds_per_weight: ArrayLike,
    rate_bps: ArrayLike,
    bits_per_weight: ArrayLike,
    fixed_bits: ArrayLike = 0.0,
    extra_seconds: ArrayLike = 0.0,
) -> FloatArray:
    """T_n = T_cmp + T_up = a_n W_rho + x_n + (q-hat W_rho + e_n) / R_n, Eqs. (14)–(15) with x = e = 0.

    As printed, both terms are proportional to W_rho: pruning a share of all weights saves that share of the time.
    The compute time x_n (a probe on the whole model) and the bits e_n (mask, scales) are spent whatever is pruned.
    """
    compute_s = np.asarray(seconds_per_weight) * np.asarray(weights, dtype=np.float64) + np.asarray(extra_seconds)
    return compute_s + uplink_time_s(weights, rate_bps, bits_per_weight=bits_per_weight, fixed_bits=fixed_bits)


def edge_round_latency_s(latency_s: ArrayLike, edge: ArrayLike, *, num_edges: int) -> FloatArray:
    """T_k = max over the edge's devices of T_n, Eq. (16).  [num_edges]

    An edge without devices has nothing to wait for: 0.

    Args:
      latency_s: T_n of every device, +inf if it never finishes.  [num_devices] or a scalar
      edge: index of the edge serving each device, 0 <= edge < num_edges.  [num_devices]
    """
    num_edges = whole_number("edge_round_latency_s.num_edges", num_edges, at_least=1)
    index = np.asarray(edge)
    if index.ndim != 1 or (index.size and not np.issubdtype(index.dtype, np.integer)):
        raise InvalidValue("edge_round_latency_s.edge", "must be one whole number per device", repr(edge))
    if np.any((index < 0) | (index >= num_edges)):
        raise InvalidValue("edge_round_latency_s.edge", f"must lie in 0..{num_edges - 1}", index.tolist())
    latency = quantity("edge_round_latency_s.latency_s", latency_s, at_least=0.0, finite=False)
    if latency.ndim and latency.shape != index.shape:
        raise InvalidValue(
            "edge_round_latency_s.latency_s", f"must have one entry per device {index.shape}", latency.shape
        )
    slowest = np.zeros(num_edges)
    np.maximum.at(slowest, index.astype(np.intp), latency)
    return slowest


def broadcast_time_s(bits: ArrayLike, rate_bps: ArrayLike, edge: ArrayLike, *, num_edges: int) -> FloatArray:
    """T_down,k = max over the edge's devices of bits / r_n = bits / min r_n. Not in the paper.  [num_edges]

    The station sends one message for all, so it must use a rate that its slowest device can decode. An edge without
    devices sends nothing: 0.

    Args:
      bits: of the message.
      rate_bps: r_n of every device over the whole bandwidth of the downlink.  [num_devices]
      edge: index of the edge serving each device, 0 <= edge < num_edges.  [num_devices]
    """
    each_s = uplink_time_s(bits, rate_bps, bits_per_weight=1.0)
    return edge_round_latency_s(each_s, edge, num_edges=num_edges)


def unicast_time_s(bits: ArrayLike, rate_bps: ArrayLike, edge: ArrayLike, *, num_edges: int) -> FloatArray:
    """T_down,k = sum over the edge's devices of bits_n / r_n. Not in the paper.  [num_edges]

    Messages follow each other over the whole bandwidth. Shares b_n of it that let all devices finish together take as
    long: bits_n / (b_n r_n) = T for all n and sum b_n = 1 give T = sum bits_n / r_n.

    Args:
      bits: of each device's message.  [num_devices] or a scalar
      rate_bps, edge: as of `broadcast_time_s`.  [num_devices]
    """
    num_edges = whole_number("unicast_time_s.num_edges", num_edges, at_least=1)
    each_s = uplink_time_s(bits, rate_bps, bits_per_weight=1.0)
    total_s = np.zeros(num_edges)
    np.add.at(total_s, np.asarray(edge, dtype=np.intp), each_s)
    return total_s


def global_round_latency_s(edge_round_latency_s: ArrayLike) -> float:
    """max over edges of the sum over its E edge rounds of T_{k,e}.

    The paper stops at Eq. (16). Edges meet only at the cloud, so a slow round of one edge can be hidden
    by its faster rounds: this is at most the sum over rounds of the slowest edge, and often less.

    Args:
      edge_round_latency_s: one row per edge round; NaN where an edge ran no such round.  [E, num_edges]
    """
    table = np.asarray(edge_round_latency_s, dtype=np.float64)
    if table.ndim != 2:
        raise InvalidValue("global_round_latency_s.edge_round_latency_s", "must be a table [E, num_edges]", table.shape)
    ran = np.where(np.isnan(table), 0.0, table)
    quantity("global_round_latency_s.edge_round_latency_s", ran, at_least=0.0, finite=False)
    return float(ran.sum(axis=0).max(initial=0.0))


def run_latency_s(global_round_latency_s: ArrayLike) -> float:
    """Sum over the Q global rounds: the cloud starts one when the one before has ended.  [Q]"""
    rounds = quantity("run_latency_s.global_round_latency_s", global_round_latency_s, at_least=0.0, finite=False)
    return float(np.sum(rounds))


def compute_energy_j(
    compute_s: ArrayLike,
    *,
    cpu_hz: ArrayLike,
    effective_capacitance: ArrayLike = EFFECTIVE_CAPACITANCE,
    num_cores: ArrayLike = 1,
) -> FloatArray:
    """E_cmp = m kappa f_n^3 T_cmp; on m = 1 core with the time of Eq. (9) kappa C_n T W_rho f_n^2. Not in the paper.

    Halving the clock doubles the time and quarters the energy. This is what switching takes on top of the power of an
    idle device.
    """
    kappa = quantity("compute_energy_j.effective_capacitance", effective_capacitance, at_least=0.0)
    time_s = quantity("compute_energy_j.compute_s", compute_s, at_least=0.0)
    cores = quantity("compute_energy_j.num_cores", num_cores, above=0.0)
    return kappa * cores * np.asarray(cpu_hz, dtype=np.float64) ** 3 * time_s


def transmit_energy_j(
    uplink_time_s: ArrayLike, *, transmit_power_w: ArrayLike, amplifier_efficiency: ArrayLike = 1.0
) -> FloatArray:
    """E_up = p_n T_up / eta. Not in the paper; the power is spent whatever the bandwidth share.

    p_n is radiated; an amplifier of efficiency eta takes p_n / eta for it.
    """
    time_s = quantity("transmit_energy_j.uplink_time_s", uplink_time_s, at_least=0.0, finite=False)
    power_w = quantity("transmit_energy_j.transmit_power_w", transmit_power_w, above=0.0)
    efficiency = quantity("transmit_energy_j.amplifier_efficiency", amplifier_efficiency, above=0.0, at_most=1.0)
    return power_w / efficiency * time_s


def receive_energy_j(receive_time_s: ArrayLike, *, receive_power_w: ArrayLike) -> FloatArray:
    """E_down = P_rx T_rx: the receiver's power for as long as it decodes. Not in the paper."""
    time_s = quantity("receive_energy_j.receive_time_s", receive_time_s, at_least=0.0, finite=False)
    return quantity("receive_energy_j.receive_power_w", receive_power_w, at_least=0.0) * time_s


def idle_energy_j(round_s: ArrayLike, *, idle_power_w: ArrayLike) -> FloatArray:
    """E_idle = P_idle T_k: a device is on for its edge's whole round, also while it waits. Not in the paper."""
    time_s = quantity("idle_energy_j.round_s", round_s, at_least=0.0, finite=False)
    return quantity("idle_energy_j.idle_power_w", idle_power_w, at_least=0.0) * time_s

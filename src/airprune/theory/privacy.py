"""Differential privacy of clipping and noise on the device: the exact (ε, δ) of all uploads of one device.

A device sends clip(Δ, C) + N(0, (z C)² I) in each of T rounds. Neighbours are two data sets of the same device that
have nothing in common (replacing one device's whole data), and the adversary is any reader of its uploads, the edge
included. Two clipped updates differ by at most 2 C, so an upload is a Gaussian mechanism with sensitivity over
standard deviation μ₁ = 2 / z. T of them, each of which may depend on those before, are together exactly as good as one
with μ = √T μ₁ (Dong, Roth, Su 2022), and that is (ε, δ) private just if (Balle, Wang 2018)

    δ  ≥  Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

With secure sums (`privacy.noise_of = "sum"`) the adversary reads sums of at least t devices, each of which adds
N(0, (z C)² / t). One device's data move a sum by at most 2 C, and the noise of t devices is z C, so the same holds. The
noise of c devices that collude with the reader does not count: z √(1 − c/t) is left.

Client sampling is not counted as amplification: the edge sees which devices upload. Beyond the bound are which
weights a device sends, if its data choose them, and the numbers beside an update: loss and number of samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from airprune.checks import one_number, whole_number
from airprune.errors import InvalidValue

if TYPE_CHECKING:
    from airprune.scenario import Scenario

# From where on e^(x²) erfc(x) is taken from its series, whose error is then below 1e-13.
_FAR = 20.0


def privacy_epsilon(noise_multiplier: float, num_rounds: int, delta: float = 1e-5) -> float:
    """ε of one device's uploads in so many edge rounds, at δ: exact, rounded up in its last digits; ∞ without noise.

    Args:
      noise_multiplier: z, the noise's standard deviation over the norm that updates are clipped to.
      num_rounds: T, in which the device uploads at the most.
    """
    z = one_number("privacy_epsilon.noise_multiplier", noise_multiplier, at_least=0.0)
    rounds = whole_number("privacy_epsilon.num_rounds", num_rounds, at_most=10**12)
    delta = _share("privacy_epsilon.delta", delta)
    if not rounds:
        return 0.0
    return gaussian_epsilon(2.0 * math.sqrt(rounds) / z, delta) if z else math.inf


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε with which a Gaussian mechanism of sensitivity μ and standard deviation 1 is (ε, δ) private."""
    low, high = 0.0, 1.0
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2.0 * high
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least δ at ε. With a = ε/μ − μ/2 and b = ε/μ + μ/2 it is Φ(−a) − φ(a) Φ(−b)/φ(b), since e^ε φ(b) = φ(a)."""
    a, b = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    return 0.5 * math.erfc(a / math.sqrt(2.0)) - 0.5 * math.exp(-a * a / 2.0) * _scaled_erfc(b / math.sqrt(2.0))


def _scaled_erfc(x: float) -> float:
    """e^(x²) erfc(x), x ≥ 0, for which e^(x²) alone may be too large."""
    if x < _FAR:
        return math.exp(x * x) * math.erfc(x)
    term = total = 1.0
    for k in range(1, 6):
        term *= -(2 * k - 1) / (2.0 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def privacy_notes(scenario: Scenario, *, deployed: bool = False) -> list[str]:
    """Returns sentences for a run with clipping and noise: its (ε, δ), then what that does not cover."""
    from airprune.rounds.method import Method

    settings = scenario.privacy
    if settings.clip_norm is None:
        return []
    if not settings.noise_multiplier:
        return ["Privacy: updates are clipped, but without noise (privacy.noise_multiplier) nothing is guaranteed."]
    method = Method.of(scenario)
    tree = method.topology.build(np.array(scenario.edge_rounds_of))
    rounds = scenario.rounds.global_rounds * math.prod(tree.max_rounds(level) for level in range(tree.depth))
    epsilon = privacy_epsilon(settings.noise_multiplier, rounds, settings.delta)
    reader = "reader of its updates"
    if settings.noise_of == "sum":
        reader = "reader of the sums of its edge that no device helps, the edge included,"
    notes = [
        f"Privacy: epsilon = {epsilon:.3g} at delta = {settings.delta:g} for all of a device's data, against any "
        f"{reader} of up to {rounds:,} edge rounds; its loss and number of samples are sent without noise."
    ]
    masking = method.masking
    if masking.by_data and scenario.plan.max_pruning_ratio > 0.0:
        notes.append(
            f"warning: with masking {masking.name!r} a device chooses from its data which weights it sends, and this "
            "choice is not protected."
        )
    if deployed and settings.noise_from == "seed":
        notes.append(
            "warning: the noise is sampled from the seed, which edges and cloud know, so it hides nothing from them; "
            'privacy.noise_from="device" does.'
        )
    return notes


def _share(field: str, value: float) -> float:
    share = one_number(field, value)
    if not 0.0 < share < 1.0:
        raise InvalidValue(field, "must be > 0 and < 1", f"{share:g}", "Example: delta = 1e-5")
    return share

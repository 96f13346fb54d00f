"""Fewer weights on all devices: trained in part, or pruned by a schedule. Equal shares, averages by data."""

from __future__ import annotations

from typing import Any

from airprune.methods.recipe import Recipe


def _masked(name: str, **options: Any) -> dict[str, Any]:
    return {
        "plan.scheme": "equal-resolved",
        "aggregation.edge": "data-weighted",
        "aggregation.cloud": "data-weighted",
        "masking.name": name,
        **{f"masking.{name}.{key}": value for key, value in options.items()},
    }


FEDPT = Recipe(
    name="fedpt",
    summary="one random part of the weights is trained for the whole run, the rest stays as initialised",
    source="Sidahmed et al.: Efficient and private federated learning with partially trainable networks",
    label="after Sidahmed et al.",
    settings=_masked("fedpt"),
    claim="much less communication at a small loss of accuracy",
)

FEDPART = Recipe(
    name="fedpart",
    summary="after a warm-up one prunable layer at a time is trained and sent; late where it does not fit",
    source="Wang et al.: Why go full? Elevating federated learning through partial network updates",
    label="after Wang et al.",
    settings=_masked("fedpart"),
    claim="as accurate as whole updates at less communication and compute",
)

FEDPLT = Recipe(
    name="fedplt",
    summary="each device trains and sends sub-layers of its own, as many as it can; the rest is frozen",
    source="Dabaja, El-Azouzi: FedPLT: Federated learning via partial layer training (arXiv 2605.02337)",
    label="after Dabaja and El-Azouzi",
    settings=_masked("fedplt"),
    claim="the accuracy of FedAvg with 71 to 82 % fewer trainable weights",
)

ITERATIVE = Recipe(
    name="iterative",
    summary="the smallest weights go for good in twenty steps of the first half; late until the last",
    source="Jiang et al.: Model pruning enables efficient federated learning on edge devices, repository",
    label="iterative magnitude pruning, as in PruneFL's repository",
    settings=_masked("iterative"),
    claim="pruning gradually loses less accuracy than pruning at once to the same density",
)

EARLY = Recipe(
    name="early",
    summary="the smallest weights go at once, when the choice has settled; dense and late before",
    source="Shen, Molchanov, Yin, Alvarez: When to prune? A policy towards early structural pruning",
    label="after Shen et al.",
    settings=_masked("early"),
)

SNIP = Recipe(
    name="snip",
    summary="after one dense round, the weights that matter least to the loss go for good",
    source="Lee, Ajanthan, Torr: SNIP: Single-shot network pruning based on connection sensitivity",
    label="as published, federated as in PruneFL's repository",
    settings=_masked("snip"),
)

PRUNEFL = Recipe(
    name="prunefl",
    summary="one mask for all, reconfigured for the most squared gradient per second; schedule scaled down",
    source="Jiang et al.: Model pruning enables efficient federated learning on edge devices",
    label="as published, scaled; its first stage during the first rounds",
    settings=_masked("prunefl"),
    claim="less time to the same accuracy than FedAvg",
)

FEDDST = Recipe(
    name="feddst",
    summary="one sparse mask for all, in which devices swap small weights for promising ones; schedule scaled down",
    source="Bibikar, Vikalo, Wang, Chen: Federated dynamic sparse training",
    label="as published, scaled",
    settings=_masked("feddst"),
)

DPF = Recipe(
    name="dpf",
    summary="the forward pass uses the largest weights, steps move all; devices remember what they do not send",
    source="Lin, Stich, Barba, Dmitriev, Jaggi: Dynamic model pruning with feedback",
    label="after Lin et al.; the federated form is own",
    settings=_masked("dpf"),
    claim="better than magnitude pruning with a fixed mask at 70 % sparsity",
)

DPF_GLOBAL = Recipe(
    name="dpf-global",
    summary="devices hold the largest weights of the cloud's model, as many as fit; the cloud remembers the others",
    source="Lin, Stich, Barba, Dmitriev, Jaggi: Dynamic model pruning with feedback",
    label="after Lin et al.; the federated form is own",
    settings=_masked("dpf-global"),
)

TAYLOR = Recipe(
    name="taylor",
    summary="the paper's plan; each device ranks by (w · gradient)², averaged over its rounds",
    source="Molchanov et al.: Importance estimation for neural network pruning",
    label="importance as published, on one minibatch per round",
    settings={"plan.scheme": "optimal", "masking.name": "averaged"},
    claim="ranks better than magnitude and random at the same count",
)

TAYLOR_UNITS = Recipe(
    name="taylor-units",
    summary="as taylor, for whole units",
    source="Molchanov et al.: Importance estimation for neural network pruning",
    label="importance as published, on one minibatch per round",
    settings={**TAYLOR.settings, "masking.averaged.structure": "neurons"},
)

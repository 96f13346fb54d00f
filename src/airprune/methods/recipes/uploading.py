"""Whole models trained, less sent: fewer bits per value, or fewer values. Equal shares of the band."""

from __future__ import annotations

from airprune.methods.recipe import Recipe

ADAPTIVE = Recipe(
    name="adaptive",
    summary="shares, bits per weight and deadline chosen together; what a code leaves out is remembered",
    settings={
        "plan.scheme": "air-budget",
        "plan.deadline_s": "auto",
        "masking.name": "frozen",
        "compression.name": "ladder",
    },
    claim="as accurate as no pruning in a seventh of the time",
)

_WHOLE_MODELS = {"plan.scheme": "no-pruning"}

FP32 = Recipe(
    name="fp32",
    summary="whole models as 32-bit values: what the paper's 64 bits are measured against",
    settings={**_WHOLE_MODELS, "compression.name": "cast", "compression.cast.format": "float32"},
    claim="meets the paper's deadline without pruning",
)

BF16 = Recipe(
    name="bf16",
    summary="updates as 16-bit values",
    settings={**_WHOLE_MODELS, "compression.name": "cast", "compression.cast.format": "bfloat16"},
)

_LARGEST_CODES = {"plan.scheme": "equal-codes"}

QSGD = Recipe(
    name="qsgd",
    summary="updates rounded at random to as many levels as the deadline allows, without memory",
    source="Alistarh et al.: QSGD",
    label="as published, on updates",
    settings={
        **_LARGEST_CODES,
        "compression.name": "quantised",
        "compression.quantised.bits": 16,
        "compression.quantised.norm": "l2",
        "compression.quantised.memory": False,
    },
)

TOPK = Recipe(
    name="topk",
    summary="the largest entries of the update, as many as the deadline allows, without memory",
    settings={
        **_LARGEST_CODES,
        "compression.name": "top-k",
        "compression.top-k.share": 1.0,
        "compression.top-k.memory": False,
    },
)

RANDK = Recipe(
    name="randk",
    summary="random entries of the update, as many as the deadline allows, right on average",
    source="Stich, Cordonnier, Jaggi: Sparsified SGD with memory",
    label="after Stich et al., without memory",
    settings={**_LARGEST_CODES, "compression.name": "random-k", "compression.random-k.share": 1.0},
)

MEM_SGD = Recipe(
    name="mem-sgd",
    summary="the largest entries of the update, as many as the deadline allows; what is not sent is remembered",
    source="Stich, Cordonnier, Jaggi: Sparsified SGD with memory",
    label="error feedback on updates, after Stich et al.",
    settings={**_LARGEST_CODES, "compression.name": "top-k", "compression.top-k.share": 1.0},
    claim="converges where the largest entries without memory stall",
)

SIGN = Recipe(
    name="sign",
    summary="one bit per weight and a scale per tensor; what is lost is remembered",
    source="Seide et al.; Karimireddy et al.: error feedback fixes SignSGD",
    label="after Karimireddy et al.",
    settings={**_WHOLE_MODELS, "compression.name": "sign"},
)

_ONE_SIGN_PER_GRADIENT = {
    **_WHOLE_MODELS,
    "aggregation.edge": "vote",
    "compression.name": "sign",
    "compression.sign.scale": 1.0,
    "compression.sign.memory": False,
    "train.local_steps": 1,
    "train.optimizer": "sgd",
    "train.momentum": 0.0,
    "plan.local_iterations": 1,
    "rounds.edge_rounds": 10,
}

SIGN_SGD = Recipe(
    name="sign-sgd",
    summary="one server moves with the majority of the signs of one gradient per device and round",
    source="Bernstein et al.: signSGD: compressed optimisation for non-convex problems",
    label="as published",
    settings={**_ONE_SIGN_PER_GRADIENT, "topology.name": "flat"},
    claim="about as accurate as full precision at a fraction of the bits, if devices have like data",
)

HIER_SIGN = Recipe(
    name="hier-sign",
    summary="edges move with the majority of the signs of one gradient per device and round; the cloud averages edges",
    source="Kazemi et al.: HierSignSGD",
    label="after Kazemi et al., without drift correction",
    settings=_ONE_SIGN_PER_GRADIENT,
    claim="about as accurate as full precision at a fraction of the bits, if edges have like data",
)

HIER_QSGD = Recipe(
    name="hier-qsgd",
    summary="HierFAVG with updates rounded at random to a few levels, to the edges and to the cloud",
    source="Liu, Zhang, Song, Letaief: Hierarchical federated learning with quantization",
    label="as published",
    settings={
        **_LARGEST_CODES,
        "aggregation.edge": "data-weighted",
        "aggregation.cloud": "data-weighted",
        "compression.name": "quantised",
        "compression.quantised.levels": 16,
        "compression.quantised.norm": "l2",
        "compression.quantised.memory": False,
        "backhaul.name": "quantised",
        "backhaul.quantised.levels": 16,
        "backhaul.quantised.norm": "l2",
        "backhaul.quantised.memory": False,
    },
    claim="which device sits at which edge does not change convergence on like data",
)

HIER_QSGD_DECAY = Recipe(
    name="hier-qsgd-decay",
    summary="hier-qsgd with fewer local steps as the loss falls: the square root of its share of the first loss",
    source="Liu, Zhang, Song, Letaief: Hierarchical federated learning with quantization",
    label="as published, its rule for local steps; loss is that of training",
    settings={**HIER_QSGD.settings, "train.steps_decay": "loss"},
    claim="fewer and fewer local steps beat a constant number at equal time",
)

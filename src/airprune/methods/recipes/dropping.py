"""Sub-models of whole units: drawn, scored, ordered by width, or one small model for all."""

from __future__ import annotations

from typing import Any

from airprune.methods.recipe import Recipe

_EQUAL_SHARES: dict[str, Any] = {"plan.scheme": "equal-resolved"}
# Units of convolutions too; the narrowest width, not the paper's cap, says how much may be left out.
_ALL_LAYERS: dict[str, Any] = {"model.prunable": ["*"], "plan.max_pruning_ratio": 1.0}
_BY_DATA = {"aggregation.edge": "data-weighted", "aggregation.cloud": "data-weighted"}
_ALIKE = {"aggregation.edge": "masked-mean", "aggregation.cloud": "masked-mean"}

_WEN = "Wen, Jeon, Huang: Federated dropout, a simple approach for resource-constrained devices"
_HORVATH = (
    "Horváth et al.: FjORD, fair and accurate federated learning under heterogeneous targets with ordered dropout"
)
_DIAO = (
    "Diao, Ding, Tarokh: HeteroFL, computation and communication efficient federated learning for heterogeneous clients"
)
_BOUACIDA = "Bouacida, Hou, Zang, Liu: Adaptive federated dropout"
_CHENG = "Cheng, Charles, Garrett, Rush: Does federated dropout actually work?"

FEDDROP = Recipe(
    name="feddrop",
    summary="every device trains hidden units drawn anew in every round, as many as fit its deadline",
    source=_WEN,
    label="after Wen et al.",
    settings={**_EQUAL_SHARES, "masking.name": "feddrop", "aggregation.edge": "fill"},
    claim="beats whole models where devices overfit, and beats uniform dropout",
)

FEDDROP_UNIFORM = Recipe(
    name="feddrop-uniform",
    summary="one draw of hidden units for all devices, as many as everybody can carry",
    source=_WEN,
    label="after Wen et al.",
    settings={**FEDDROP.settings, "masking.feddrop.subnets": "uniform"},
)

FEDDROP_BERNOULLI = Recipe(
    name="feddrop-bernoulli",
    summary="as feddrop, with a coin for every unit instead of exact numbers: right on average, and late now and then",
    source=_WEN,
    label="after Wen et al.",
    settings={**FEDDROP.settings, "masking.feddrop.draw": "bernoulli"},
)

HETEROFL = Recipe(
    name="heterofl",
    summary="every device trains the leading channels and units, at the largest of five widths that fits",
    source=_DIAO,
    label="after Diao et al.",
    settings={**_EQUAL_SHARES, **_ALL_LAYERS, **_ALIKE, "masking.name": "heterofl"},
    claim="mixed widths beat everybody at the smallest width",
)

HETEROFL_FC = Recipe(
    name="heterofl-fc",
    summary="as heterofl, with whole convolutions: only hidden units of linear layers are left out",
    source=_DIAO,
    label="after Diao et al., restricted to linear layers",
    settings={**_EQUAL_SHARES, **_ALIKE, "masking.name": "heterofl"},
)

FJORD = Recipe(
    name="fjord",
    summary="ordered dropout: every minibatch trains a width drawn among those the device can carry",
    source=_HORVATH,
    label="after Horváth et al.",
    settings={**_EQUAL_SHARES, **_ALL_LAYERS, **_BY_DATA, "masking.name": "fjord"},
    claim="beats federated dropout and small models at equal size; every width is usable without retraining",
)

FJORD_FC = Recipe(
    name="fjord-fc",
    summary="as fjord, with whole convolutions: only hidden units of linear layers are left out",
    source=_HORVATH,
    label="after Horváth et al., restricted to linear layers",
    settings={**_EQUAL_SHARES, **_BY_DATA, "masking.name": "fjord"},
)

FJORD_KD = Recipe(
    name="fjord-kd",
    summary="fjord with distillation: the widest sub-model that fits learns from labels and teaches the width drawn",
    source=_HORVATH,
    label="after Horváth et al.",
    settings={**FJORD.settings, "masking.name": "fjord-kd"},
    claim="distillation helps: more accurate than fjord without it",
)

AFD = Recipe(
    name="afd",
    summary="one score map for all devices: units that were kept when the loss fell come again",
    source=_BOUACIDA,
    label="after Bouacida et al.",
    settings={**_EQUAL_SHARES, **_BY_DATA, "masking.name": "afd", "masking.afd.maps": "single"},
    claim="more accurate than random federated dropout at equal size",
)

AFD_MULTI = Recipe(
    name="afd-multi",
    summary="a score map for each device: units that were kept when its loss fell come again",
    source=_BOUACIDA,
    label="after Bouacida et al.",
    settings={**AFD.settings, "masking.afd.maps": "multi"},
)

SMALL_MODEL = Recipe(
    name="small-model",
    summary="one model of the largest width that everybody can carry",
    source=_CHENG,
    label="after Cheng et al.",
    settings={**_EQUAL_SHARES, **_BY_DATA, "masking.name": "small-model"},
)

SMALL_ENSEMBLE = Recipe(
    name="small-ensemble",
    summary="a small model for each edge, never averaged by the cloud; all predict together",
    source=_CHENG,
    label="after Cheng et al.",
    settings={**SMALL_MODEL.settings, "topology.name": "ensemble"},
    claim="at least as accurate as federated dropout at equal bits",
)

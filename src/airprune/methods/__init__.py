"""Named bundles of components: `method = "fedprox"` sets its components; each can be changed.

recipe       what a recipe is, how it is read, and its costs
recipes/     one TOML file per family of methods, whose title says what they share
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.recipe import Recipe, listed

DEFAULT_METHOD = "adaptive-pruning"

# Every method's family, which is the file of its recipe; methods are listed in this order.
METHODS: Registry[Recipe] = Registry(
    "methods",
    {
        "adaptive-pruning": "pruning",
        "frozen-pruning": "pruning",
        "adaptive-bits": "uploading",
        "adaptive-work": "working",
        "shared-pruning": "pruning",
        "japp": "pruning",
        "feddrop": "dropping",
        "feddrop-uniform": "dropping",
        "feddrop-bernoulli": "dropping",
        "feddrop-all": "dropping",
        "heterofl": "dropping",
        "heterofl-fc": "dropping",
        "fedrolex": "dropping",
        "fjord": "dropping",
        "fjord-fc": "dropping",
        "fjord-kd": "dropping",
        "afd": "dropping",
        "afd-multi": "dropping",
        "small-model": "dropping",
        "small-ensemble": "dropping",
        "hierfavg": "averaging",
        "fedavg": "averaging",
        "h-sgd": "averaging",
        "fedprox": "averaging",
        "scaffold": "averaging",
        "fedavgm": "averaging",
        "fedadam": "averaging",
        "fednova": "averaging",
        "fp32": "uploading",
        "bf16": "uploading",
        "fixed-16": "uploading",
        "fixed-8": "uploading",
        "fixed-4": "uploading",
        "fixed-2": "uploading",
        "qsgd": "uploading",
        "topk": "uploading",
        "randk": "uploading",
        "mem-sgd": "uploading",
        "topk-1": "uploading",
        "stc": "uploading",
        "sign": "uploading",
        "sign-sgd": "uploading",
        "hier-sign": "uploading",
        "hier-qsgd": "uploading",
        "hier-qsgd-decay": "uploading",
        "random": "allocating",
        "best-channel": "allocating",
        "proportional-fair": "allocating",
        "oort": "allocating",
        "hybridfl": "allocating",
        "liu2022": "allocating",
        "liu2022-hier": "allocating",
        "variance": "allocating",
        "minmax-pruning": "allocating",
        "drop-stragglers": "allocating",
        "fewer-steps": "allocating",
        "mobility": "allocating",
        "fogfl": "topologies",
        "lanfl": "topologies",
        "d2d-fedavg": "topologies",
        "d2d-sign": "topologies",
        "tt-prune": "topologies",
        "semi-sync": "topologies",
        "fedbuff": "topologies",
        "steps-that-fit": "working",
        "fedprox-steps": "working",
        "timelyfl": "working",
        "cocofl": "working",
        "phfl": "allocating",
        "ren2021": "allocating",
        "conflict-graph": "associating",
        "hfel": "associating",
        "hfel-pruning": "associating",
        "ina": "associating",
        "replicator": "associating",
        "fedpt": "sparse",
        "fedpart": "sparse",
        "fedplt": "sparse",
        "iterative": "sparse",
        "early": "sparse",
        "snip": "sparse",
        "prunefl": "sparse",
        "feddst": "sparse",
        "dpf": "sparse",
        "dpf-dense": "sparse",
        "magnitude-rechosen": "sparse",
        "taylor": "sparse",
        "taylor-units": "sparse",
    },
    load=listed,
    called={
        "adaptive": ("adaptive-bits", "adaptive-work"),  # which prune nothing: `adaptive-pruning` is the paper's
        "dpf-global": ("magnitude-rechosen", "dpf-dense"),  # which gave pruned weights no gradient
    },
)

__all__ = ["DEFAULT_METHOD", "METHODS", "Recipe"]

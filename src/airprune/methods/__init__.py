"""Named bundles of components: `method = "fedprox"` sets what the method is made of; every part can be changed.

base         what a recipe is
pruning      the paper's method and its relatives
averaging    FedAvg, HierFAVG and their server steps, objectives, trees
dropping     sub-models of whole units
uploading    what travels: fewer bits, fewer entries
allocating   who is asked, who gets which band, who moves
"""

from __future__ import annotations

from airprune.methods.base import Recipe
from airprune.registry import Registry

DEFAULT_METHOD = "adaptive-pruning"

METHODS: Registry[Recipe] = Registry(
    "methods",
    {
        "adaptive-pruning": "airprune.methods.pruning:ADAPTIVE_PRUNING",
        "frozen-pruning": "airprune.methods.pruning:FROZEN_PRUNING",
        "adaptive": "airprune.methods.uploading:ADAPTIVE",
        "shared-pruning": "airprune.methods.pruning:SHARED_PRUNING",
        "feddrop": "airprune.methods.dropping:FEDDROP",
        "feddrop-uniform": "airprune.methods.dropping:FEDDROP_UNIFORM",
        "heterofl": "airprune.methods.dropping:HETEROFL",
        "heterofl-fc": "airprune.methods.dropping:HETEROFL_FC",
        "fjord": "airprune.methods.dropping:FJORD",
        "fjord-fc": "airprune.methods.dropping:FJORD_FC",
        "afd": "airprune.methods.dropping:AFD",
        "afd-multi": "airprune.methods.dropping:AFD_MULTI",
        "small-model": "airprune.methods.dropping:SMALL_MODEL",
        "small-ensemble": "airprune.methods.dropping:SMALL_ENSEMBLE",
        "hierfavg": "airprune.methods.averaging:HIERFAVG",
        "fedavg": "airprune.methods.averaging:FEDAVG",
        "h-sgd": "airprune.methods.averaging:H_SGD",
        "fedprox": "airprune.methods.averaging:FEDPROX",
        "fedavgm": "airprune.methods.averaging:FEDAVGM",
        "fedadam": "airprune.methods.averaging:FEDADAM",
        "fp32": "airprune.methods.uploading:FP32",
        "bf16": "airprune.methods.uploading:BF16",
        "qsgd": "airprune.methods.uploading:QSGD",
        "topk": "airprune.methods.uploading:TOPK",
        "mem-sgd": "airprune.methods.uploading:MEM_SGD",
        "sign": "airprune.methods.uploading:SIGN",
        "random": "airprune.methods.allocating:RANDOM",
        "best-channel": "airprune.methods.allocating:BEST_CHANNEL",
        "liu2022": "airprune.methods.allocating:LIU2022",
        "variance": "airprune.methods.allocating:VARIANCE",
        "mobility": "airprune.methods.allocating:MOBILITY",
    },
)

__all__ = ["DEFAULT_METHOD", "METHODS", "Recipe"]

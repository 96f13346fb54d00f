"""Named bundles of components: `method = "fedprox"` sets what the method is made of; every part can be changed.

base         what a recipe is
costs        what a method costs beside the weights that are kept
pruning      the paper's method and its relatives
averaging    FedAvg, HierFAVG and their server steps, objectives, trees
dropping     sub-models of whole units
uploading    what travels: fewer bits, fewer entries
allocating   who is asked, who gets which band, who moves
topologies   who averages where and when: near devices, LANs, edges in the cloud's place, tiers
associating  who is served by which edge
sparse       fewer weights on all devices: trained in part, or pruned by a schedule
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.methods.recipe import Recipe

DEFAULT_METHOD = "adaptive-pruning"

METHODS: Registry[Recipe] = Registry(
    "methods",
    {
        "adaptive-pruning": "airprune.methods.recipes.pruning:ADAPTIVE_PRUNING",
        "frozen-pruning": "airprune.methods.recipes.pruning:FROZEN_PRUNING",
        "adaptive": "airprune.methods.recipes.uploading:ADAPTIVE",
        "shared-pruning": "airprune.methods.recipes.pruning:SHARED_PRUNING",
        "japp": "airprune.methods.recipes.pruning:JAPP",
        "feddrop": "airprune.methods.recipes.dropping:FEDDROP",
        "feddrop-uniform": "airprune.methods.recipes.dropping:FEDDROP_UNIFORM",
        "feddrop-bernoulli": "airprune.methods.recipes.dropping:FEDDROP_BERNOULLI",
        "heterofl": "airprune.methods.recipes.dropping:HETEROFL",
        "heterofl-fc": "airprune.methods.recipes.dropping:HETEROFL_FC",
        "fjord": "airprune.methods.recipes.dropping:FJORD",
        "fjord-fc": "airprune.methods.recipes.dropping:FJORD_FC",
        "fjord-kd": "airprune.methods.recipes.dropping:FJORD_KD",
        "afd": "airprune.methods.recipes.dropping:AFD",
        "afd-multi": "airprune.methods.recipes.dropping:AFD_MULTI",
        "small-model": "airprune.methods.recipes.dropping:SMALL_MODEL",
        "small-ensemble": "airprune.methods.recipes.dropping:SMALL_ENSEMBLE",
        "hierfavg": "airprune.methods.recipes.averaging:HIERFAVG",
        "fedavg": "airprune.methods.recipes.averaging:FEDAVG",
        "h-sgd": "airprune.methods.recipes.averaging:H_SGD",
        "fedprox": "airprune.methods.recipes.averaging:FEDPROX",
        "scaffold": "airprune.methods.recipes.averaging:SCAFFOLD",
        "fedavgm": "airprune.methods.recipes.averaging:FEDAVGM",
        "fedadam": "airprune.methods.recipes.averaging:FEDADAM",
        "fp32": "airprune.methods.recipes.uploading:FP32",
        "bf16": "airprune.methods.recipes.uploading:BF16",
        "qsgd": "airprune.methods.recipes.uploading:QSGD",
        "topk": "airprune.methods.recipes.uploading:TOPK",
        "randk": "airprune.methods.recipes.uploading:RANDK",
        "mem-sgd": "airprune.methods.recipes.uploading:MEM_SGD",
        "sign": "airprune.methods.recipes.uploading:SIGN",
        "sign-sgd": "airprune.methods.recipes.uploading:SIGN_SGD",
        "hier-sign": "airprune.methods.recipes.uploading:HIER_SIGN",
        "hier-qsgd": "airprune.methods.recipes.uploading:HIER_QSGD",
        "hier-qsgd-decay": "airprune.methods.recipes.uploading:HIER_QSGD_DECAY",
        "random": "airprune.methods.recipes.allocating:RANDOM",
        "best-channel": "airprune.methods.recipes.allocating:BEST_CHANNEL",
        "proportional-fair": "airprune.methods.recipes.allocating:PROPORTIONAL_FAIR",
        "oort": "airprune.methods.recipes.allocating:OORT",
        "hybridfl": "airprune.methods.recipes.allocating:HYBRIDFL",
        "liu2022": "airprune.methods.recipes.allocating:LIU2022",
        "liu2022-hier": "airprune.methods.recipes.allocating:LIU2022_HIER",
        "variance": "airprune.methods.recipes.allocating:VARIANCE",
        "mobility": "airprune.methods.recipes.allocating:MOBILITY",
        "fogfl": "airprune.methods.recipes.topologies:FOGFL",
        "lanfl": "airprune.methods.recipes.topologies:LANFL",
        "d2d-fedavg": "airprune.methods.recipes.topologies:D2D_FEDAVG",
        "d2d-sign": "airprune.methods.recipes.topologies:D2D_SIGN",
        "tt-prune": "airprune.methods.recipes.topologies:TT_PRUNE",
        "phfl": "airprune.methods.recipes.allocating:PHFL",
        "ren2021": "airprune.methods.recipes.allocating:REN2021",
        "conflict-graph": "airprune.methods.recipes.associating:CONFLICT_GRAPH",
        "hfel": "airprune.methods.recipes.associating:HFEL",
        "hfel-pruning": "airprune.methods.recipes.associating:HFEL_PRUNING",
        "ina": "airprune.methods.recipes.associating:INA",
        "replicator": "airprune.methods.recipes.associating:REPLICATOR",
        "fedpt": "airprune.methods.recipes.sparse:FEDPT",
        "fedpart": "airprune.methods.recipes.sparse:FEDPART",
        "fedplt": "airprune.methods.recipes.sparse:FEDPLT",
        "iterative": "airprune.methods.recipes.sparse:ITERATIVE",
        "early": "airprune.methods.recipes.sparse:EARLY",
        "snip": "airprune.methods.recipes.sparse:SNIP",
        "prunefl": "airprune.methods.recipes.sparse:PRUNEFL",
        "feddst": "airprune.methods.recipes.sparse:FEDDST",
        "dpf": "airprune.methods.recipes.sparse:DPF",
        "dpf-global": "airprune.methods.recipes.sparse:DPF_GLOBAL",
        "taylor": "airprune.methods.recipes.sparse:TAYLOR",
        "taylor-units": "airprune.methods.recipes.sparse:TAYLOR_UNITS",
    },
)

__all__ = ["DEFAULT_METHOD", "METHODS", "Recipe"]

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
        "japp": "airprune.methods.pruning:JAPP",
        "feddrop": "airprune.methods.dropping:FEDDROP",
        "feddrop-uniform": "airprune.methods.dropping:FEDDROP_UNIFORM",
        "feddrop-bernoulli": "airprune.methods.dropping:FEDDROP_BERNOULLI",
        "heterofl": "airprune.methods.dropping:HETEROFL",
        "heterofl-fc": "airprune.methods.dropping:HETEROFL_FC",
        "fjord": "airprune.methods.dropping:FJORD",
        "fjord-fc": "airprune.methods.dropping:FJORD_FC",
        "fjord-kd": "airprune.methods.dropping:FJORD_KD",
        "afd": "airprune.methods.dropping:AFD",
        "afd-multi": "airprune.methods.dropping:AFD_MULTI",
        "small-model": "airprune.methods.dropping:SMALL_MODEL",
        "small-ensemble": "airprune.methods.dropping:SMALL_ENSEMBLE",
        "hierfavg": "airprune.methods.averaging:HIERFAVG",
        "fedavg": "airprune.methods.averaging:FEDAVG",
        "h-sgd": "airprune.methods.averaging:H_SGD",
        "fedprox": "airprune.methods.averaging:FEDPROX",
        "scaffold": "airprune.methods.averaging:SCAFFOLD",
        "fedavgm": "airprune.methods.averaging:FEDAVGM",
        "fedadam": "airprune.methods.averaging:FEDADAM",
        "fp32": "airprune.methods.uploading:FP32",
        "bf16": "airprune.methods.uploading:BF16",
        "qsgd": "airprune.methods.uploading:QSGD",
        "topk": "airprune.methods.uploading:TOPK",
        "randk": "airprune.methods.uploading:RANDK",
        "mem-sgd": "airprune.methods.uploading:MEM_SGD",
        "sign": "airprune.methods.uploading:SIGN",
        "sign-sgd": "airprune.methods.uploading:SIGN_SGD",
        "hier-sign": "airprune.methods.uploading:HIER_SIGN",
        "hier-qsgd": "airprune.methods.uploading:HIER_QSGD",
        "hier-qsgd-decay": "airprune.methods.uploading:HIER_QSGD_DECAY",
        "random": "airprune.methods.allocating:RANDOM",
        "best-channel": "airprune.methods.allocating:BEST_CHANNEL",
        "proportional-fair": "airprune.methods.allocating:PROPORTIONAL_FAIR",
        "oort": "airprune.methods.allocating:OORT",
        "hybridfl": "airprune.methods.allocating:HYBRIDFL",
        "liu2022": "airprune.methods.allocating:LIU2022",
        "liu2022-hier": "airprune.methods.allocating:LIU2022_HIER",
        "variance": "airprune.methods.allocating:VARIANCE",
        "mobility": "airprune.methods.allocating:MOBILITY",
        "fogfl": "airprune.methods.topologies:FOGFL",
        "lanfl": "airprune.methods.topologies:LANFL",
        "d2d-fedavg": "airprune.methods.topologies:D2D_FEDAVG",
        "d2d-sign": "airprune.methods.topologies:D2D_SIGN",
        "tt-prune": "airprune.methods.topologies:TT_PRUNE",
        "phfl": "airprune.methods.allocating:PHFL",
        "ren2021": "airprune.methods.allocating:REN2021",
        "conflict-graph": "airprune.methods.associating:CONFLICT_GRAPH",
        "hfel": "airprune.methods.associating:HFEL",
        "hfel-pruning": "airprune.methods.associating:HFEL_PRUNING",
        "ina": "airprune.methods.associating:INA",
        "replicator": "airprune.methods.associating:REPLICATOR",
        "fedpt": "airprune.methods.sparse:FEDPT",
        "fedpart": "airprune.methods.sparse:FEDPART",
        "fedplt": "airprune.methods.sparse:FEDPLT",
        "iterative": "airprune.methods.sparse:ITERATIVE",
        "early": "airprune.methods.sparse:EARLY",
        "snip": "airprune.methods.sparse:SNIP",
        "prunefl": "airprune.methods.sparse:PRUNEFL",
        "feddst": "airprune.methods.sparse:FEDDST",
        "dpf": "airprune.methods.sparse:DPF",
        "dpf-global": "airprune.methods.sparse:DPF_GLOBAL",
        "taylor": "airprune.methods.sparse:TAYLOR",
        "taylor-units": "airprune.methods.sparse:TAYLOR_UNITS",
    },
)

__all__ = ["DEFAULT_METHOD", "METHODS", "Recipe"]

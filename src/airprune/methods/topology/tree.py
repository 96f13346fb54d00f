"""A tree of any depth: levels of averaging nodes between the edges and the cloud.

Edges, and the nodes of each level, are partitioned evenly and in order among the level above. Hierarchical SGD with
three levels is `nodes = [2], rounds = [3]`: two regions average their edges three times before the cloud averages the
regions.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from airprune.errors import InvalidValue
from airprune.methods.topology.base import Array, Level, Tree, WiredTopology, edges_below
from airprune.settings.section import Count, Positive


def _partitioned(children: int, parents: int) -> Array:
    """Parent of each child: consecutive children together, as evenly as possible."""
    if children < parents:
        rule = f"must have no more nodes in a level than below it ({children})"
        raise InvalidValue("Scenario.topology.tree.nodes", rule, parents)
    return np.arange(children) * parents // children


class TreeTopology(WiredTopology):
    """Puts averaging nodes between cloud and edges; options give the levels from the top down."""

    name = "tree"
    summary = "levels of averaging nodes between edges and cloud"
    source = "hierarchical SGD, any depth"

    nodes: tuple[Count, ...] = Field(default=(2,), description="averaging nodes of each level between cloud and edges")
    rounds: tuple[Count, ...] = Field(
        default=(1,), description="rounds of each such level per round of the level above it"
    )
    rate_bps: tuple[Positive, ...] = Field(
        default=(),
        description="rates of the links up from each such level and from the edges; empty: backhaul_bps on all of them",
    )

    @model_validator(mode="after")
    def _agree(self) -> TreeTopology:
        if len(self.rounds) != len(self.nodes):
            rule = f"must have one entry for each of {len(self.nodes)} levels"
            raise InvalidValue(f"{self.owner}.rounds", rule, list(self.rounds))
        if self.rate_bps and len(self.rate_bps) != len(self.nodes) + 1:
            rule = f"must be empty or have {len(self.nodes) + 1} entries: each level's links up, then the edges'"
            raise InvalidValue(f"{self.owner}.rate_bps", rule, list(self.rate_bps))
        return self

    def build(self, rounds: Array) -> Tree:
        rates = self.rate_bps or (self.wired_bps,) * (len(self.nodes) + 1)
        levels, above = [], 1
        for number, (nodes, level_rounds) in enumerate(zip(self.nodes, self.rounds, strict=True)):
            levels.append(
                Level(
                    name=f"level-{number + 1}",
                    parent=_partitioned(nodes, above),
                    rounds=np.full(nodes, level_rounds),
                    rate_bps=np.full(nodes, rates[number]),
                )
            )
            above = nodes
        return Tree((*levels, edges_below(_partitioned(len(rounds), above), rounds, rates[-1])))

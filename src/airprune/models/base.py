"""The base class of the catalogue's models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airprune.components.component import Listed

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Model(Listed):
    """A model of the catalogue.

    Attributes:
      build: of the shape of one input and the number of classes → a torch module with weights sampled by torch's own
        generator, which the run's seed has set. A module with a method `load_base` gets weights by it that are not
        sampled.
    """

    build: Callable[[Sequence[int], int], nn.Module]

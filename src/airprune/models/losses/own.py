"""Losses and metrics that users bring along as functions, and the names that scenarios give them."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airprune.errors import InvalidValue
from airprune.models.losses import AUTO, LOSSES, METRICS, OWN, loss_named
from airprune.models.losses.base import Loss, Metric

if TYPE_CHECKING:
    from airprune.scenario import Scenario

# Functions of torch that have a name here.
_KNOWN = {"cross_entropy": "cross-entropy", "mse_loss": "mse", "huber_loss": "huber"}
_KNOWN_METRICS = {"l1_loss": "mae"}


@dataclass(frozen=True)
class Criteria:
    """The loss that a run minimises, and the metrics that its models are evaluated by besides.

    Attributes:
      more: further metrics, which may be vectors; each gets all test samples at once.
    """

    loss: Loss
    metric: Metric | None
    more: tuple[Metric, ...] = ()

    @property
    def is_accuracy(self) -> bool:
        return self.metric is not None and self.metric.name == "accuracy"

    @property
    def adds_up(self) -> bool:
        """True if sums over parts of the test set add up to those over all of it."""
        return self.loss.total is not None and (self.metric is None or self.metric.total is not None)

    @property
    def key(self) -> str:
        """The metric's key in a record."""
        return key_of(self.metric) if self.metric is not None else "test_"

    def with_accuracy(self, num_classes: int) -> Criteria:
        """Returns the same with accuracy beside a loss that has no metric of its own, if there are classes."""
        known = METRICS["accuracy"]
        if not num_classes or self.metric is not None or known in self.more:
            return self
        return dataclasses.replace(self, more=(known, *self.more))


def key_of(metric: Metric) -> str:
    """Returns the metric's key in a record."""
    return f"test_{metric.name.replace('-', '_')}"


def named(scenario: Scenario, loss: Any, metric: Any) -> Scenario:
    """Returns the scenario with the names of the given functions; None leaves its own."""
    changes: dict[str, Any] = {}
    if loss is not None:
        changes["train.loss"] = _name("run.loss", loss, _KNOWN, Loss)
    if isinstance(metric, (list, tuple)):
        changes["evaluation.metrics"] = [_name("run.metric", one, _KNOWN_METRICS, Metric) for one in metric]
    elif metric is not None:
        changes["train.metric"] = _name("run.metric", metric, _KNOWN_METRICS, Metric)
    return scenario.with_values(changes) if changes else scenario


def criteria_of(scenario: Scenario, loss: Any = None, metric: Any = None) -> Criteria:
    """Returns the criteria of a scenario that `named` has made; functions without a name here must be given again."""
    train, several = scenario.train, metric if isinstance(metric, (list, tuple)) else ()
    more = tuple(_more(scenario.evaluation.metrics, several))
    metric = None if several else metric
    chosen = _chosen("loss", train.loss, loss, loss_named, lambda: Loss(name=train.loss, summary="", mean=loss))
    name = chosen.metric if train.metric == AUTO else train.metric
    if not name:
        return Criteria(chosen, None, more)
    short = name.removeprefix(OWN)
    own = Metric(name=short, summary="", mean=metric)
    return Criteria(chosen, _chosen("metric", name, metric, METRICS.__getitem__, lambda: own), more)


def _more(names: Sequence[str], given: Sequence[Any]) -> Iterator[Metric]:
    """Yields the further metrics of a scenario; functions of a script are found by the names that `named` gave them."""
    functions = {_name("run.metric", one, _KNOWN_METRICS, Metric): one for one in given}
    for name in names:
        yield _one_more(name, functions.get(name))


def _one_more(name: str, function: Any) -> Metric:
    own = Metric(name=name.removeprefix(OWN), summary="", mean=function)
    found: Metric = _chosen("metrics", name, function, METRICS.__getitem__, lambda: own)
    return found


def _chosen(kind: str, name: str, given: Any, known: Callable[[str], Any], made: Callable[[], Any]) -> Any:
    if not name.startswith(OWN):
        return known(name)
    if given is None:
        rule = "names a function of the script that started the run"
        field = "Scenario.evaluation.metrics" if kind == "metrics" else f"Scenario.train.{kind}"
        again = "metric=[…]" if kind == "metrics" else f"{kind}=…"
        raise InvalidValue(field, rule, repr(name), f"Give it again: airprune.run(…, {again}).")
    return given if isinstance(given, (Loss, Metric)) else made()


def _name(field: str, given: Any, known: Mapping[str, str], cls: type[Loss] | type[Metric]) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, cls):
        registry: Any = LOSSES if cls is Loss else METRICS
        is_listed = given.name in registry and registry[given.name] is given
        return given.name if is_listed else OWN + given.name
    if not callable(given) or isinstance(given, type):
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InvalidValue(field, "must be a function of (outputs, targets)", got, "Example: torch.nn.MSELoss()")
    functions: Any = sys.modules.get("torch.nn.functional")
    for name, ours in known.items():
        if functions is not None and given is getattr(functions, name):
            return ours
    text = getattr(given, "__name__", type(given).__name__)
    return OWN + (re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "function")

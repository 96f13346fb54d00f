"""Callbacks that receive a run's records: functions, loggers, anything with a `take`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from airprune.errors import InvalidValue, StopRun
from airprune.scenario import Scenario

Record = dict[str, Any]
Model = Mapping[str, np.ndarray]
Result = TypeVar("Result")


class Callback:
    """The base of callbacks that need the begin and the end of a run; override the methods you need.

    A callback receives records after they are saved, in the process that drives the run. An exception ends the run,
    resumable. A resumed run passes on the remaining records.
    """

    def begin(self, scenario: Scenario, folder: Path | None) -> None:
        """Called before the first record; `folder` is the run folder, None if nothing is written."""

    def take(self, record: Record) -> None:
        """Called with each record: `record["kind"]` is "edge", "node" or "global".

        Raising `airprune.StopRun("reason")` ends the run there, with its model, as if it had been its last round.
        """

    def see(self, record: Record, model: Model) -> None:
        """Called after `take` with each global round's record and the model as it is then, read-only.

        `model` maps the names of the module's tensors to arrays, as `load_state_dict` takes them; several models that
        predict together have numbers before the names. It may raise `airprune.StopRun` too.
        """

    def end(self, *, finished: bool) -> None:
        """Called after the last record (finished), or when the run was stopped before."""


class _Function(Callback):
    def __init__(self, function: Callable[[Record], Any]) -> None:
        self._function = function

    def take(self, record: Record) -> None:
        self._function(record)


class _Seeing(Callback):
    def __init__(self, function: Callable[[Record, Model], Any]) -> None:
        self._function = function

    def see(self, record: Record, model: Model) -> None:
        self._function(record, model)


# A callback, a function of a record or of a global record and the model, or the name of a logger ("tensorboard").
GivenCallback = Callback | Callable[[Record], Any] | Callable[[Record, Model], Any] | str


def callbacks_of(given: Iterable[GivenCallback]) -> list[Callback]:
    """Returns each as a callback; names are those of `airprune.sinks.SINKS`."""
    found: list[Callback] = []
    for one in given:
        if isinstance(one, str):
            from airprune.sinks import sink_named

            found.append(sink_named(one)())
        elif isinstance(one, Callback):
            found.append(one)
        elif callable(one):
            function: Any = one
            found.append(_Seeing(function) if _takes_two(function) else _Function(function))
        else:
            rule = "must be functions of a record, or of a record and the model, callbacks or names of loggers"
            raise InvalidValue("run.callbacks", rule, repr(one), 'Example: callbacks=[print, "tensorboard"]')
    return found


def _takes_two(function: Callable[..., Any]) -> bool:
    """True if a function has two parameters that must be given: a record and the model."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in places and one.default is inspect.Parameter.empty for one in parameters) == 2


def with_callbacks(
    callbacks: Sequence[Callback],
    records: Generator[Record, None, Result],
    scenario: Scenario,
    folder: Path | None,
    model: Callable[[], Model],
) -> Generator[Record, None, Result]:
    """Yields the records after passing each to the callbacks; all callbacks that have begun see the end.

    Args:
      model: returns the model after the last record; called only where a callback sees it.
    """
    seeing = [callback for callback in callbacks if type(callback).see is not Callback.see]
    begun: list[Callback] = []
    finished = False
    try:
        for callback in callbacks:
            callback.begin(scenario, folder)
            begun.append(callback)
        while True:
            try:
                record = next(records)
            except StopIteration as end:
                finished = True
                result: Result = end.value
                return result
            try:
                for callback in callbacks:
                    callback.take(record)
                if seeing and record["kind"] == "global":
                    now = model()
                    for callback in seeing:
                        callback.see(record, now)
            except StopRun as stop:
                yield record
                result = ended(records, stop)
                finished = True
                return result
            yield record
    finally:
        records.close()
        for callback in begun:
            callback.end(finished=finished)


def ended(records: Generator[Record, None, Result], stop: StopRun) -> Result:
    """Ends a run after the record it has yielded; returns what it returns."""
    try:
        records.throw(stop)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("a run that is stopped yields no more records")

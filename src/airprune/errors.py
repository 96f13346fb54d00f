"""Defines all errors that airprune raises on purpose.

    AirpruneError                 catch this to catch all of them
    ├── UsageError                the request is wrong: a field, an option, a file      (exit status 2)
    │   ├── InvalidValue          a field breaks its rule
    │   │   └── NotFinite         numbers to choose by are NaN or infinite, e.g. if training has diverged
    │   ├── UnknownName           a name that is not in its list; says which is nearest
    │   ├── BadTable              a fleet or network table cannot be read; says the line
    │   └── MissingExtra          a package is not installed; says the command (airprune.extras)
    └── WorkFailed                the request is right but cannot be fulfilled          (exit status 1)
        ├── Infeasible            no plan exists; says what blocks and what would work
        ├── Exhausted             the machine has no open file, space or memory left; says which
        ├── Diverged              a run's models are not finite numbers any more; says which, since when
        └── BadUpload             a device's bytes are not the expected update (airprune.deployment.uploads)

Each message is one sentence of the form: owner.field, rule, value got, way out.
"""

from __future__ import annotations

import difflib
import errno
import reprlib
import resource
import traceback
from collections.abc import Iterable, Sequence

_MOST_NAMES = 30  # of a list of known names in a message
_MOST_CHARS = 60  # of an unknown name in a message


class AirpruneError(Exception):
    """Base of all deliberate errors; `exit_status` is what the command line returns."""

    exit_status = 1

    def without_value(self) -> AirpruneError:
        """Returns the same error without the value, for files of other users, whose contents are not shown."""
        return self


class StopRun(Exception):
    """Raised by a callback to end its run after the record it was given; the message is the reason."""


class UsageError(AirpruneError):
    exit_status = 2


class InvalidValue(UsageError, ValueError):
    """A field breaks its rule, e.g. `PlanProblem.deadline_s must be > 0, got -1. Example: …`."""

    def __init__(self, field: str, rule: str, got: object, way_out: str = "") -> None:
        super().__init__(f"{field} {rule}, got {got}." + (f" {way_out}" if way_out else ""))
        self._known = field, rule, way_out

    def without_value(self) -> InvalidValue:
        field, rule, way_out = self._known
        return InvalidValue(field, rule, "something else", way_out)


class NotFinite(InvalidValue):
    """Numbers to choose by are NaN or infinite."""


class UnknownName(UsageError, KeyError):
    """A name that is not in its list, which is shown in whole, or in part if it is long."""

    def __init__(
        self, kind: str, name: object, known: Iterable[str], *, more: str = "", called: Sequence[str] = ()
    ) -> None:
        """Lists the known names; `called` are those that the wanted one may stand for."""
        known = list(known)
        name = name[:_MOST_CHARS] if isinstance(name, str) else reprlib.repr(name)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        listed = ", ".join([*_first(known), *filter(None, [more])])
        self.message = f"{kind} {name!r} is unknown; {hint}known: {listed}."
        self.message_without_name = f"{kind} must be one of those known here, got another: {listed}."
        if called:
            self.message = self.message_without_name = (
                f"{kind} {name!r} is not the name of a method; write {' or '.join(called)}."
            )
        super().__init__(self.message)

    def without_value(self) -> UsageError:
        return UsageError(self.message_without_name)

    def __str__(self) -> str:  # KeyError would show the quoted repr
        return self.message


def _first(names: list[str]) -> list[str]:
    """Returns the names, or of a long list the first ones and the number of the others."""
    if len(names) <= _MOST_NAMES:
        return names
    return [*names[:_MOST_NAMES], f"{len(names) - _MOST_NAMES} more"]


class BadTable(UsageError):
    """A table cannot be read; `line` is the 1-based line in the file, 0 if the file as a whole is at fault."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        super().__init__(f"{source}, line {line}: {problem}" if line else f"{source}: {problem}")
        self.line = line


class WorkFailed(AirpruneError):
    exit_status = 1


class Infeasible(WorkFailed):
    """No plan exists for the problem as it stands."""


class Diverged(WorkFailed):
    """A run has ended early, since its models are not finite; all its records have been yielded."""


class Exhausted(WorkFailed):
    """The machine has run out of something, so the file that showed it is not at fault."""


NO_MEMORY = "There is not enough memory for this; use fewer devices or workers, or end other programs."
_EXHAUSTED = {
    errno.EMFILE: "This process has reached its limit of open files (`ulimit -n` is {limit}); raise it, e.g. "
    "`ulimit -n 1024`, and give the command again.",
    errno.ENFILE: "This machine has reached its limit of open files; end other programs, or raise fs.file-max.",
    errno.ENOSPC: "There is no space left on the device{where}; delete something, or choose a folder elsewhere.",
    errno.EDQUOT: "The disk quota of this user is used up{where}; delete something, or choose a folder elsewhere.",
    errno.ENOMEM: NO_MEMORY,
}


def exhausted_by(error: BaseException) -> Exhausted | None:
    """Returns the error about the resource that has run out, if the system reports that."""
    sentence = _EXHAUSTED.get(error.errno or 0) if isinstance(error, OSError) else None
    if sentence is None:
        return None
    name = getattr(error, "filename", None)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Exhausted(sentence.format(limit=limit, where="" if name is None else f" ({name})"))


def raise_if_exhausted(error: BaseException) -> None:
    """Raises Exhausted if a resource has run out, so that a file is not blamed for it."""
    if exhausted := exhausted_by(error):
        raise exhausted from error


def trouble_of(error: Exception) -> str:
    """Returns a deliberate error's own sentence, or the traceback of an unexpected one in a worker."""
    if isinstance(error, AirpruneError):
        return str(error)
    return f"A worker could not do its task:\n{''.join(traceback.format_exception(error)).rstrip()}"

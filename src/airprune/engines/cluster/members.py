"""Which workers of the cluster take part: those with our versions and our files. Others are named once and left out."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from distributed import Client

from airprune.engines.cluster import tasks
from airprune.engines.cluster.parcel import Parcel, parts_of

_log = logging.getLogger("airprune")


class Members:
    """Keeps up with who joins and leaves.

    Attributes:
      accepted: addresses of the workers that may take part.
      refused: why the others may not.
    """

    def __init__(self, client: Client, parcel: Parcel) -> None:
        self.client = client
        self.parcel = parcel
        self.source = parcel.folder
        self.wanted = tasks.versions()
        self.accepted: set[str] = set()
        self.refused: dict[str, str] = {}

    def refresh(self) -> None:
        """Greets newcomers, gives them the files they lack, forgets those who left."""
        present = set(self.client.scheduler_info()["workers"])
        self.accepted &= present
        self.refused = {address: why for address, why in self.refused.items() if address in present}
        newcomers = sorted(present - self.accepted - set(self.refused))
        if not newcomers:
            return
        answers = self._ask(newcomers)
        if self._place([address for address, answer in answers.items() if _lacks_files(answer)]):
            answers |= self._ask([address for address, answer in answers.items() if _lacks_files(answer)])
        for address, answer in answers.items():
            if answer is None:
                self.accepted.add(address)
            elif not isinstance(answer, OSError):  # which it would be if it has just died
                self.refuse(address, _reason_in(answer))

    def refuse(self, address: str, why: str) -> None:
        """Leaves a worker out from now on, and says so once."""
        self.accepted.discard(address)
        if address not in self.refused:
            self.refused[address] = why
            _log.warning("Worker %s is left out: it %s.", address, why)

    @property
    def restriction(self) -> list[str] | None:
        """Where tasks may go: anywhere, so that newcomers are used at once, unless somebody is refused."""
        return sorted(self.accepted) if self.refused else None

    def forget(self) -> None:
        """Frees what the run has left on the workers."""
        if self.accepted:
            self.client.run(tasks.forget, self.parcel, workers=sorted(self.accepted), on_error="ignore")

    def _ask(self, addresses: list[str]) -> dict[str, Any]:
        answers: dict[str, Any] = self.client.run(
            tasks.greet, self.wanted, self.parcel, workers=addresses, on_error="return"
        )
        return answers

    def _place(self, addresses: list[str]) -> bool:
        """Sends the files to one worker of each machine."""
        machines = {urlsplit(address).hostname: address for address in addresses}
        if not machines:
            return False
        receivers = sorted(machines.values())
        for name, offset, piece in parts_of(self.source):
            self.client.run(Parcel.receive, self.parcel, name, offset, piece, workers=receivers)
        self.client.run(Parcel.complete, self.parcel, workers=receivers)
        return True


def _lacks_files(answer: Any) -> bool:
    return isinstance(answer, tasks.Refusal) and answer.missing


def _reason_in(answer: Any) -> str:
    """Why a worker that gave this answer is left out."""
    if isinstance(answer, tasks.Refusal):
        return answer.sentence
    if isinstance(answer, ImportError):
        return f"has no airprune ({answer})"
    return f"does not answer as it should ({type(answer).__name__}: {answer})"

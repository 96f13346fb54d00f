"""When an edge writes what it must not forget, and that a full disk is waited for."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from airprune.deployment.edge_state import EdgeState
from airprune.deployment.kept_rounds import KeptRound, kept_place
from airprune.deployment.round_machine import RoundKey

_log = logging.getLogger("airprune")
_RETRY_S = 0.5
# Between writings of states of which the cloud has all.
_SAVE_EVERY_S = 0.2


@dataclass(kw_only=True, eq=False)
class EdgeDisk:
    """One folder; in a running event loop.

    Attributes:
      keeps_uploads: whether rounds are kept whole, see `kept_rounds`.
    """

    folder: Path
    keeps_uploads: bool
    _newest: EdgeState | None = None
    _saved_s: float = -_SAVE_EVERY_S
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)

    def file(self, run: str) -> Path:
        return self.folder / f"edge-{run}.safetensors"

    async def save(self, state: EdgeState, key: RoundKey, kept: KeptRound) -> None:
        """The state after a round, and the round."""
        self._newest = state

        def write() -> None:
            if self.keeps_uploads:
                kept.save(kept_place(self.folder, key))
            state.save(self.file(key.run))

        async with self._saving:
            self._saved_s = time.monotonic()
            told = ""
            while True:
                try:
                    return await asyncio.to_thread(write)
                except OSError as error:
                    sentence = f"{self.folder} was not written: {error.strerror or error}; make room."
                if sentence != told:
                    _log.info("%s", sentence)
                    told = sentence
                await asyncio.sleep(_RETRY_S)

    async def save_soon(self, state: EdgeState, key: RoundKey, kept: KeptRound) -> None:
        """For a state of which the cloud has all: of those that follow each other in a moment, the last is written."""
        self._newest = state
        if not self.keeps_uploads:
            await asyncio.sleep(self._saved_s + _SAVE_EVERY_S - time.monotonic())
            if self._newest is not state:
                return
        await self.save(state, key, kept)

"""Limits on what all clients together may take of this server, so that no number of them brings it down.

Every limit is told by a sentence and status 503 (or 408 for what comes too slowly); docs/web.md has them as a table.

    Lane      threads of its own and a short queue: large plans wait for large ones, never small ones for them
    Places    so many answers of one kind at once, such as streams
    Uploads   bodies on their way: how many, how large together, how slow
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from airprune.web.answers import refusal

# Up to this size a plan takes a tenth of a second, its comparison with every other scheme a second tenth.
SMALL_DEVICES = 20_000
SMALL_BYTES = 2**20

MAX_UPLOADS = 8
MAX_UPLOADED_BYTES = 128 * 2**20
MAX_PAUSE_S = 10.0
MAX_UPLOAD_S = 120.0
MAX_DOWNLOADS = 8

_RETRY_S = 5

Result = TypeVar("Result")


class Busy(HTTPException):
    """Others have taken what there is of something."""

    def __init__(self, sentence: str) -> None:
        super().__init__(503, sentence, {"Retry-After": str(_RETRY_S)})


class Lane:
    """A few threads for one kind of work, and a queue that ends in `Busy`."""

    def __init__(self, what: str, *, at_once: int, max_waiting: int) -> None:
        self.what = what
        self.at_once = at_once
        self.max_waiting = max_waiting
        self._lock = threading.Lock()
        self._num_inside = 0
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=f"airprune {what}")

    async def run(self, request: Request, work: Callable[[], Result]) -> Result:
        """Returns the result of `work`; work whose client has left before its turn is not begun."""
        future = self._enter(work)
        done = asyncio.wrap_future(future)
        left = asyncio.create_task(_left(request))
        try:
            waiting: set[asyncio.Future[Any]] = {done, left}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise ClientDisconnect
            return done.result()
        finally:
            left.cancel()
            future.cancel()

    def _enter(self, work: Callable[[], Result]) -> Future[Result]:
        with self._lock:
            if self._num_inside >= self.at_once + self.max_waiting:
                raise Busy(f"The server is busy with {self._num_inside} {self.what}s. Try again in a moment.")
            self._num_inside += 1
        future = self._threads.submit(work)
        future.add_done_callback(self._leave)
        return future

    def close(self) -> None:
        """Cancels all work that has not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._num_inside -= 1


async def _left(request: Request) -> None:
    """Returns when the client has gone."""
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except HTTPException:  # a body where none belongs, and too long: nobody reads it, so nobody needs to know
        await asyncio.Event().wait()


class Lanes:
    """Holds the lanes in which plans are made."""

    def __init__(self) -> None:
        self.small = Lane("small plan", at_once=2, max_waiting=200)
        self.large = Lane("large plan", at_once=1, max_waiting=4)

    def for_devices(self, num_devices: int) -> Lane:
        return self.small if num_devices <= SMALL_DEVICES else self.large

    def close(self) -> None:
        self.small.close()
        self.large.close()

    def for_bytes(self, num_bytes: int) -> Lane:
        return self.small if num_bytes <= SMALL_BYTES else self.large


class Places:
    """So many at once; only to be used on the event loop, where nobody comes between a look and a step."""

    def __init__(self, limit: int, sentence: str) -> None:
        self.limit = limit
        self.sentence = sentence
        self.num_taken = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        if self.num_taken >= self.limit:
            raise Busy(self.sentence)
        self.num_taken += 1
        try:
            yield
        finally:
            self.num_taken -= 1


class LimitedStream(StreamingResponse):
    """Takes a place while it is sent, and only then: an answer that is never sent takes none."""

    def __init__(self, content: Any, places: Places, **options: Any) -> None:
        super().__init__(content, **options)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._places.taken():
                await super().__call__(scope, receive, send)
        except Busy as busy:
            await refusal(busy.status_code, busy.detail, busy.headers)(scope, receive, send)


class Uploads:
    """The bodies that clients are sending, until their requests are answered."""

    def __init__(self) -> None:
        busy = f"The server takes {MAX_UPLOADS} uploads at once, and there are as many. Try again in a moment."
        self._places = Places(MAX_UPLOADS, busy)
        self._num_bytes = 0

    @contextlib.asynccontextmanager
    async def watched(self, receive: Receive, has_body: bool) -> AsyncIterator[Receive]:
        """`receive` with the limits of this class; what it holds is given back at the end."""
        with contextlib.ExitStack() as held:
            upload = _Upload(self, receive, held) if has_body else None
            try:
                yield receive if upload is None else upload.receive
            finally:
                self._num_bytes -= 0 if upload is None else upload.num_bytes

    def enter(self, held: contextlib.ExitStack) -> None:
        held.enter_context(self._places.taken())

    def count(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes > MAX_UPLOADED_BYTES:
            size = f"{MAX_UPLOADED_BYTES // 2**20} MiB"
            raise Busy(f"The server holds at most {size} of uploads, and there are as many. Try again in a moment.")


class _Upload:
    """One body."""

    def __init__(self, uploads: Uploads, receive: Receive, held: contextlib.ExitStack) -> None:
        self.num_bytes = 0
        self._uploads = uploads
        self._receive = receive
        self._held = held
        self._began: float | None = None
        self._is_whole = False

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        if self._began is None:
            self._uploads.enter(self._held)
            self._began = time.monotonic()
        left_s = self._began + MAX_UPLOAD_S - time.monotonic()
        try:
            async with asyncio.timeout(min(MAX_PAUSE_S, left_s)):
                message = await self._receive()
        except TimeoutError:
            rule = f"must arrive within {MAX_UPLOAD_S:g} s and without a pause of {MAX_PAUSE_S:g} s"
            raise HTTPException(408, f"request.body {rule}, got slower. Send it again.", _CLOSE) from None
        num_bytes = len(message.get("body", b""))
        self.num_bytes += num_bytes
        self._is_whole = not message.get("more_body", False)
        self._uploads.count(num_bytes)
        return message


_CLOSE = {"Connection": "close"}

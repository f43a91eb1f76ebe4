"""How a connection handles a large request: it is decoded, handled and answered in chunks."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from kwire.concurrency.chunking import run_chunks
from kwire.handlers.shared.context import BlockingContinuation, Context, DropConnection
from kwire.metrics import Latency
from kwire.server.kafka.large_requests import SLOT_SECONDS_MAX
from kwire.server.kafka.routes import Route
from kwire.server.kafka.shared import Shared
from kwire.server.kafka.throttling import ConnectionQuota
from kwire.wire.chunked_release import release
from kwire.wire.connection import Request, ServerConnection
from kwire.wire.errors import WireError
from kwire.wire.frame import FrameReader
from kwire.wire.types import Buffer


class LargeRequestHandling:
    """The part of a connection that handles large requests."""

    __slots__ = ()

    _shared: Shared
    _machine: ServerConnection
    _transport: Any
    _unanswered: "set[asyncio.Future[Any]]"
    reader: FrameReader
    quota: ConnectionQuota | None

    def _context_of(self, request: Request) -> Context:
        raise NotImplementedError

    def _send_ready(self, ready: list[Buffer], latency: Latency, began: float) -> None:
        raise NotImplementedError

    def _end_large_request(self) -> None:
        raise NotImplementedError

    def _fail(self, reason: str) -> None:
        raise NotImplementedError

    def _fail_handler(self, request: Request) -> None:
        raise NotImplementedError

    async def _handle_large(self, route: Route, request: Request, began: float) -> None:
        """Decode, handle and answer a large request in chunks. Its frame is the next frame of the reader."""
        slots = self._shared.large_requests
        try:
            async with slots:
                decoded, answer = await self._begin_large(route, request, began)
                await asyncio.wait((answer,), timeout=SLOT_SECONDS_MAX)
                if answer.done():
                    await self._finish_large(route, request, decoded, answer.result(), began)
                    return
            # The response probably waits for requests of other clients, and those requests may need the slot.
            await answer
            async with slots:
                await self._finish_large(route, request, decoded, answer.result(), began)
        except (WireError, DropConnection) as problem:
            self._fail(str(problem))
        except Exception:
            self._fail_handler(request)

    async def _finish_large(self, route: Route, request: Request, decoded: Any, answer: Any, began: float) -> None:
        chunks = None if answer is None else await run_chunks(route.chunked_encode(request.version, answer))
        self._end_large_request()
        if not self._transport.is_closing():
            self._send_ready(self._machine.answer_later(request, chunks), route.latency, began)
        del chunks
        for message in (decoded, answer):
            await run_chunks(release(message))

    async def _begin_large(self, route: Route, request: Request, began: float) -> "tuple[Any, asyncio.Future[Any]]":
        """Decode a large request and call its handler. Returns the decoded request and a future of its response."""
        frame = self.reader.next_frame()
        assert frame is not None, "the frame was put back, and nothing reads while it is handled"
        body = self._machine.open(frame).body
        assert body is not None
        decoded = await run_chunks(route.chunked_decode(request.version, body))
        context = self._context_of(request)
        if self.quota is None:
            answer = route.handle(context, decoded)
        else:
            answer = self.quota.handle(route, context, decoded, len(frame), began)
        if type(answer) is BlockingContinuation:
            answer = self._answer_of_held(answer)
        else:
            self.reader.settle()
        if isinstance(answer, Awaitable):
            future: asyncio.Future[Any] = asyncio.ensure_future(answer)
        else:
            future = asyncio.get_running_loop().create_future()
            future.set_result(answer)
        # Futures in this set are cancelled when the connection is lost.
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        return decoded, future

    async def _answer_of_held(self, held: BlockingContinuation) -> Any:
        """Wait for the end of a large request's ordered phase, release its frame, and return its response."""
        answer = await held.rest
        self.reader.settle()
        return await answer if isinstance(answer, Awaitable) else answer

"""A Kafka client's connection: the shell around `wire/connection.py` that has a socket, and calls handlers.

Bytes are read into the memory the frame reader names, requests are handled in order inside the callback that brought
them, answers of one callback leave in one write. Only an answer that has to wait becomes a future. Reading stops while
answers are not taken, while too many requests wait, or while the memory for requests is used up.

No connection keeps the loop for long. When the requests of one loop iteration have taken TURN_SECONDS, each connection
handles one more request, and what it has received beyond that waits for a turn of its own. A large request is decoded,
handled and answered in chunks, and the requests after it on the same connection wait for its answer, as in Kafka.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.broker.chunking import call_in_turn, run_chunks
from kwire.descriptors import Descriptors, descriptor_of
from kwire.handlers.api_versions import refuse_version
from kwire.handlers.context import Context, DropConnection, Handler, Held, LaterFrame, Services, Shortcut
from kwire.metrics import Latency, ServerMetrics
from kwire.server.complaints import Complaints
from kwire.server.large_requests import SLOT_SECONDS_MAX, LargeRequests
from kwire.server.routes import Route
from kwire.wire.connection import Request, ServerConnection, Turn
from kwire.wire.errors import TooManyElements, WireError
from kwire.wire.frame import Account, ReceiveMemory
from kwire.wire.release import release
from kwire.wire.schema import Api
from kwire.wire.types import Buffer

if TYPE_CHECKING:
    from kwire.server.listener import Door

log = logging.getLogger("kwire.server")

UNSENT_BYTES_MAX = 1024 * 1024
# What all requests that arrive in one loop iteration may take before connections with more of them have to wait.
TURN_SECONDS = 0.002
# Starved connections that are tried in one loop iteration after memory was released.
FED_PER_TURN = 100


# Of an API that no connection has used yet.
_NO_LATENCY = Latency()


class Outbox:
    """The answers of one loop turn, sent together at its end.

    A client on the same machine is woken by the first answer and would be put to sleep and woken again for each of the
    others; handed over together they cost one wake-up, for it and for us.
    """

    __slots__ = ("_loop", "_senders")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._senders: list[KafkaConnection] = []

    def add(self, sender: "KafkaConnection") -> None:
        if not self._senders:
            self._loop.call_soon(self._send)
        self._senders.append(sender)

    def _send(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            try:
                sender.send()
            except Exception:
                # One broken connection must not keep the answers of the others.
                log.exception("sending failed; the connection from %s is closed", sender.client_host)
                sender.abort()


class Shared:
    """What all Kafka connections of this node have in common."""

    def __init__(
        self, handlers: Mapping[int, Handler], services: Services, metrics: ServerMetrics, descriptors: Descriptors
    ) -> None:
        network = services.config.network
        self.routes = {key: Route(handler, metrics.requests[key]) for key, handler in handlers.items()}
        self.apis: dict[int, Api] = {key: handler.api for key, handler in handlers.items()}
        self.services = services
        self.metrics = metrics
        self.descriptors = descriptors
        self.network = network
        limit_bytes = network.requests_bytes_max if network.requests_bytes_max > 0 else 2**62
        self.memory = ReceiveMemory(limit_bytes, network.request_bytes_max)
        self.accounts: dict[str, Account] = {}
        self.large_requests = LargeRequests()
        self.outbox = Outbox()
        self._loop = asyncio.get_running_loop()
        self._turn_end: float | None = None
        self.complaints = Complaints(log)
        self.connections: set[KafkaConnection] = set()
        self.connections_by_host: Counter[str] = Counter()
        # Connections that are not read until memory for their requests is free, first come first.
        self.starved: dict[KafkaConnection, None] = {}
        self._is_feeding = False
        self.memory.on_release = self._feed_soon

    def turn_end(self) -> float:
        """When the requests that arrived in this loop iteration will have taken long enough."""
        if self._turn_end is None:
            self._turn_end = perf_counter() + TURN_SECONDS
            self._loop.call_soon(self._end_turn)
        return self._turn_end

    def _end_turn(self) -> None:
        self._turn_end = None

    def _feed_soon(self) -> None:
        """Memory for requests is free again."""
        if self.starved and not self._is_feeding:
            self._is_feeding = True
            self._loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._is_feeding = False
        for connection in tuple(islice(self.starved, FED_PER_TURN)):
            connection.try_reading()


class KafkaConnection(asyncio.BufferedProtocol):
    """One socket. All methods run in the event loop."""

    __slots__ = ("_context", "_door", "_is_deferred", "_is_held", "_is_reading", "_is_writable", "_large", "_machine",
                 "_outgoing", "_shared", "_shortcut", "_shortcut_latency", "_transport", "_unanswered", "_unsent_bytes",
                 "active_at", "client_host", "is_draining", "reader", "stuck_since")  # fmt: skip

    def __init__(self, shared: Shared, door: "Door") -> None:
        self._shared = shared
        self._door = door
        self._machine = ServerConnection(shared.apis, shared.memory, shared.network.request_bytes_max)
        self.reader = self._machine.reader
        self._transport: Any = None
        # That of the last request: most requests of a connection are alike, and a context never changes.
        self._context: Context | None = None
        self._is_reading = True
        self._is_writable = True
        # Requests that have arrived wait for a turn of this connection.
        self._is_deferred = False
        # What answers a large request, while that takes.
        self._large: asyncio.Future[None] | None = None
        # The ordered phase of that request goes on, and uses the memory in which it arrived.
        self._is_held = False
        self._outgoing: list[Buffer] = []
        # That of the last API with a shortcut that was used.
        self._shortcut: Shortcut | None = None
        self._shortcut_latency = _NO_LATENCY
        self._unanswered: set[asyncio.Future[Any]] = set()
        self.client_host = ""
        self.active_at = 0.0
        # Since when the client has not taken its answers, or the bound on memory has kept its request from being read.
        self.stuck_since: float | None = None
        self._unsent_bytes = 0
        self.is_draining = False

    @property
    def endpoint(self) -> tuple[str, int]:
        if self._door.advertised is not None:
            return self._door.advertised.host, self._door.advertised.port
        # Nothing is advertised: the address the client reached us at is one it can reach again.
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    @property
    def descriptor(self) -> int:
        return descriptor_of(self._transport)

    @property
    def is_frame_shared(self) -> bool:
        return self.reader.is_shared

    def hold(self, size_bytes: int) -> bool:
        return self.reader.hold(size_bytes)

    def release(self, size_bytes: int) -> None:
        self.reader.release(size_bytes)

    @property
    def is_quiet(self) -> bool:
        """Nothing is being received, waits, or is unsent."""
        return not self._machine.waiting and not self._outgoing and not self._transport.get_write_buffer_size()

    @property
    def _is_muted(self) -> bool:
        """The next request waits for a turn, or for the answer to a large one."""
        return self._is_deferred or self._large is not None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        self.active_at = perf_counter()
        if not self._door.admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._unanswered:
            future.cancel()
        self._unanswered.clear()
        if self._large is not None:
            self._large.cancel()
        self.reader.close()
        # It refers to this connection, which is to be freed without the garbage collector.
        self._context = None
        self._door.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self._shared.metrics.received_bytes += count
        self.active_at = perf_counter()
        self.reader.received(count)
        self._serve()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_writable = False
        self.stuck_since = perf_counter()
        self._unsent_bytes = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._is_writable = True
        self.stuck_since = None
        self._serve()

    def close(self) -> None:
        self.send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def drain(self) -> None:
        """Take no more requests; close once everything taken has been answered and sent."""
        self.is_draining = True
        self._transport.pause_reading()
        self._is_reading = False
        self._close_if_drained()

    def note_progress(self, now: float) -> None:
        """Called from time to time while stuck: a slow client that takes its answers bit by bit is not stuck."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self.stuck_since = now
        self._unsent_bytes = unsent_bytes

    @property
    def is_receiving(self) -> bool:
        """A request has arrived in part, and the rest of it is awaited: from the client, or until there is memory."""
        is_awaited = self._is_reading or self.reader.is_starved
        return self.reader.held_bytes > 0 and is_awaited and not self._is_muted and not self.is_draining

    def is_stuck_since(self, time: float) -> bool:
        return self.stuck_since is not None and self.stuck_since <= time

    def give_up(self) -> None:
        """Close at once, and release the memory of an unfinished request now rather than with the socket."""
        self.reader.close()
        self._shared.starved.pop(self, None)
        self._transport.abort()

    def try_reading(self) -> None:
        """Called from time to time while reading is stopped: memory for requests may be free again."""
        if not self._is_reading and not self.is_draining:
            self._serve()

    def _serve(self, turn_end: float | None = None) -> None:
        """Handle the whole requests that are here until the turn ends, then send the answers that are ready."""
        large = self._large
        if self._is_deferred or large is not None or self._transport.is_closing():
            return
        if turn_end is None:
            turn_end = self._shared.turn_end()
        machine, reader, bound = self._machine, self.reader, self._shared.network.inflight_max
        waiting = machine.waiting
        ready: list[Buffer] = []
        ready_bytes = 0
        is_first = True
        try:
            while self._is_writable and not self.is_draining and len(waiting) < bound:
                frame = reader.next_frame()
                if frame is None:
                    break
                if is_first:
                    is_first = False
                elif perf_counter() > turn_end:
                    reader.put_back(frame)
                    self._is_deferred = True
                    call_in_turn(self._serve_deferred)
                    break
                answer = None if self._shortcut is None else self._shortcut.answer(frame)
                if answer is None:
                    chunks = self._handle(machine.open(frame), frame)
                    if self._large is not None:
                        break
                    for chunk in chunks:
                        ready.append(chunk)
                        ready_bytes += len(chunk)
                elif waiting or type(answer) is not bytes:
                    self._wait_for_frame(answer)
                else:
                    self._shortcut_latency.observe(perf_counter() - self.active_at)
                    ready.append(answer)
                    ready_bytes += len(answer)
                if ready_bytes > UNSENT_BYTES_MAX:
                    # Else a client that takes no answers could ask for any amount of them in one go.
                    self._write(ready, ready_bytes)
                    self.send()
                    ready, ready_bytes = [], 0
                    if self._transport.is_closing():
                        return
        except (WireError, DropConnection) as problem:
            self._fail(str(problem))
            return
        except Exception:
            log.exception("a handler failed; the connection from %s is closed", self.client_host)
            self._fail("a handler failed")
            return
        finally:
            # The end of the frames that were handled, except for one whose request is held.
            if not self._is_held:
                reader.settle()
        if ready:
            self._write(ready, ready_bytes)
        self._turn_reading()

    def _serve_deferred(self) -> None:
        self._is_deferred = False
        self._serve(perf_counter() + TURN_SECONDS)

    def _wait_for_frame(self, answer: bytes | LaterFrame) -> None:
        """Queue the answer of the shortcut: it comes later, or answers before it do."""
        turn = Turn()
        self._machine.wait(turn)
        if isinstance(answer, LaterFrame):
            answer.on_complete(partial(self._send_framed, turn, self._shortcut_latency, self.active_at))
        else:
            self._shortcut_latency.observe(perf_counter() - self.active_at)
            turn.answer = [answer]

    def _send_framed(self, turn: Turn, latency: Latency, began: float, frame: bytes) -> None:
        """The answer to a request that took the shortcut has come later."""
        if not self._transport.is_closing():
            self._send_on(self._machine.answer_framed(turn, [frame]), latency, began)

    def _handle(self, request: Request, frame: memoryview) -> list[Buffer]:
        shared = self._shared
        route = shared.routes[request.api.key]
        version = request.version
        if request.body is None:
            return self._machine.answer_now(request, route.encode(version, refuse_version()))
        began = perf_counter()
        try:
            decoded = route.decode(version, request.body)
        except TooManyElements:
            self.reader.put_back(frame)
            request.body = None
            self._machine.wait(request)
            self._large = asyncio.ensure_future(self._handle_large(route, request, began))
            return []
        context = self._context_of(request)
        answer = route.handle(context, decoded)
        if type(answer) is Held:
            self._hold(route, request, answer, began)
            return []
        is_later = type(answer) is not route.response and answer is not None
        if route.shortcut is not None and answer is not None:
            if self._shortcut is None or self._shortcut_latency is not route.latency:
                self._shortcut, self._shortcut_latency = route.shortcut(), route.latency
            self._shortcut.learn(context, frame, decoded, None if is_later else answer)
        if is_later:
            self._answer_later(request, answer, began)
            return []
        ready = self._machine.answer_now(request, None if answer is None else route.encode(version, answer))
        route.latency.observe(perf_counter() - began)
        return ready

    def _context_of(self, request: Request) -> Context:
        context = self._context
        if context is None or context.api_version != request.version or context.client_id is not request.client_id:
            context = self._context = Context(self._shared.services, self, request.version, request.client_id)
        return context

    async def _handle_large(self, route: Route, request: Request, began: float) -> None:
        """Decode, handle and answer a request in chunks; it is the next frame of the reader."""
        slots = self._shared.large_requests
        try:
            async with slots:
                decoded, answer = await self._begin_large(route, request)
                await asyncio.wait((answer,), timeout=SLOT_SECONDS_MAX)
                if answer.done():
                    await self._finish_large(route, request, decoded, answer.result(), began)
                    return
            # It waits for other clients, and they may have to wait for a slot.
            await answer
            async with slots:
                await self._finish_large(route, request, decoded, answer.result(), began)
        except (WireError, DropConnection) as problem:
            self._fail(str(problem))
        except Exception:
            self._fail_handler(request)

    async def _finish_large(self, route: Route, request: Request, decoded: Any, answer: Any, began: float) -> None:
        chunks = await _encode_large(route, request.version, answer)
        self._large = None
        if not self._transport.is_closing():
            self._send_on(self._machine.answer_later(request, chunks), route.latency, began)
        del chunks
        for message in (decoded, answer):
            await run_chunks(release(message))

    async def _begin_large(self, route: Route, request: Request) -> "tuple[Any, asyncio.Future[Any]]":
        """Run the ordered phase of a large request, whose bytes are given up with it; returns it and its answer."""
        frame = self.reader.next_frame()
        assert frame is not None, "the frame was put back, and nothing reads while it is handled"
        body = self._machine.open(frame).body
        assert body is not None
        decoded = await run_chunks(route.chunked_decode(request.version)(body))
        answer = route.handle(self._context_of(request), decoded)
        if type(answer) is Held:
            answer = self._answer_of_held(answer)
        else:
            self.reader.settle()
        if isinstance(answer, Awaitable):
            future: asyncio.Future[Any] = asyncio.ensure_future(answer)
        else:
            future = asyncio.get_running_loop().create_future()
            future.set_result(answer)
        # So that it ends with the connection.
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        return decoded, future

    async def _answer_of_held(self, held: Held) -> Any:
        """The answer to a large request whose ordered phase is not over."""
        answer = await held.rest
        self.reader.settle()
        return await answer if isinstance(answer, Awaitable) else answer

    def _hold(self, route: Route, request: Request, held: Held, began: float) -> None:
        """Handle no later request until the ordered phase of this one is over."""
        self._machine.wait(request)
        # Of a request in shared memory its handler has made a copy.
        self._is_held = not self.reader.is_shared
        self._large = asyncio.ensure_future(self._finish_held(route, request, held, began))

    async def _finish_held(self, route: Route, request: Request, held: Held, began: float) -> None:
        try:
            answer = await held.rest
            is_later = isinstance(answer, Awaitable)
            chunks = None if answer is None or is_later else route.encode(request.version, answer)
        except DropConnection as problem:
            self._fail(str(problem))
            return
        except Exception:
            self._fail_handler(request)
            return
        self._is_held, self._large = False, None
        if self._transport.is_closing():
            return
        if is_later:
            self._await_answer(request, answer, began)
            self._serve()
        else:
            self._send_on(self._machine.answer_later(request, chunks), route.latency, began)

    def _answer_later(self, request: Request, answer: Awaitable[Any], began: float) -> None:
        self._machine.wait(request)
        self._await_answer(request, answer, began)

    def _await_answer(self, request: Request, answer: Awaitable[Any], began: float) -> None:
        # It would keep the memory of the frame, which is given back now.
        request.body = None
        future = asyncio.ensure_future(answer)
        self._unanswered.add(future)
        future.add_done_callback(lambda done: self._answered(request, done, began))

    def _answered(self, request: Request, future: "asyncio.Future[Any]", began: float) -> None:
        self._unanswered.discard(future)
        if future.cancelled() or self._transport.is_closing():
            return
        route = self._shared.routes[request.api.key]
        try:
            answer = future.result()
            chunks = None if answer is None else route.encode(request.version, answer)
        except Exception:
            self._fail_handler(request)
            return
        self._send_on(self._machine.answer_later(request, chunks), route.latency, began)

    def _send_on(self, ready: list[Buffer], latency: Latency, began: float) -> None:
        """An answer that came later is there: send what its turn lets through, and go on."""
        self.active_at = ended = perf_counter()
        latency.observe(ended - began)
        if ready:
            self._write(ready, sum(map(len, ready)))
        if self.is_draining:
            self._close_if_drained()
        elif not self._is_reading:
            self._serve()

    def _close_if_drained(self) -> None:
        # What is written but unsent does not count: a transport that is closed sends it first.
        if not self._machine.waiting:
            self.close()

    def _write(self, chunks: list[Buffer], size_bytes: int) -> None:
        self._shared.metrics.sent_bytes += size_bytes
        if self._outgoing:
            self._outgoing += chunks
        else:
            self._outgoing = chunks
            self._shared.outbox.add(self)

    def send(self) -> None:
        """Hand everything that is ready to the socket."""
        chunks = self._outgoing
        if not chunks:
            return
        self._outgoing = []
        if self._transport.is_closing():
            return
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    def _turn_reading(self) -> None:
        """Read on, or stop, as the bounds say."""
        is_starved, starved = self.reader.is_starved, self._shared.starved
        if is_starved:
            self.stuck_since = self.stuck_since or perf_counter()
            starved[self] = None
        else:
            if starved:
                starved.pop(self, None)
            if self._is_writable:
                self.stuck_since = None
        may_read = (
            self._is_writable
            and not is_starved
            and not self.is_draining
            and not self._is_deferred
            and self._large is None
            and len(self._machine.waiting) < self._shared.network.inflight_max
        )
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _fail_handler(self, request: Request) -> None:
        """Called in an exception handler."""
        log.exception("%s failed; the connection from %s is closed", request.api.name, self.client_host)
        self._fail(f"{request.api.name} failed")

    def _fail(self, reason: str) -> None:
        self._shared.metrics.connections_failed += 1
        self._shared.complaints.add("closing the connection from %s: %s", self.client_host, reason)
        self._transport.abort()


async def _encode_large(route: Route, version: int, answer: Any) -> list[Buffer] | None:
    return None if answer is None else await run_chunks(route.chunked_encode(version)(answer))

"""The connection of a Kafka client. It reads frames from a socket, calls the handlers, and writes the responses.

Bytes are read into memory of the frame reader. Requests are handled in order, in the callback that received them. The
responses of one callback are sent by one write. Only a response that has to wait needs a future. Reading stops while
the client does not read its responses, while too many requests wait, or while the memory for requests is used up.

No connection blocks the event loop for long. When the requests of one loop iteration have taken BUDGET_SECONDS, each
connection handles one more request, and one whose client is not logged in none. Other requests are handled later. A
large request is handled in chunks. As in Kafka, later requests of the same connection wait for its response.

A connection is starved while the server does not read from it, because the memory for requests is used up, or the share
of this memory for the client's host.

On a listener with SASL, `gate` decides which requests are handled before the login is complete, and after the end of
the session. Until the login, frames are small (`sasl.server.max.receive.size`).
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.access.principal import Principal
from kwire.access.sasl.authentication import Authentication
from kwire.concurrency.chunking import schedule_chunk
from kwire.descriptors import descriptor_of
from kwire.handlers.api_versions import refuse_version
from kwire.handlers.shared.context import BlockingContinuation, Context, DeferredFrame, DropConnection, TemplateCache
from kwire.handlers.shared.views import Views
from kwire.metrics import Latency
from kwire.server.kafka.failures import log_closed, log_failed_handler
from kwire.server.kafka.large_request_handling import LargeRequestHandling
from kwire.server.kafka.login import Login
from kwire.server.kafka.routes import Route, routes_of
from kwire.server.kafka.shared import Shared
from kwire.server.kafka.throttling import MUTE_STEP_SECONDS, ConnectionQuota
from kwire.server.loop_budget import BUDGET_SECONDS
from kwire.wire.connection import PendingResponse, Request, ServerConnection
from kwire.wire.errors import TooManyElements, WireError
from kwire.wire.frame import POOLED_STEP_BYTES, SHORT_READ_BYTES, SMALL_STEP_BYTES
from kwire.wire.schema import Api
from kwire.wire.types import Buffer

if TYPE_CHECKING:
    from kwire.server.kafka.listener import KafkaListener

UNSENT_BYTES_MAX = 1024 * 1024
# The sizes of a read after the budget of the loop iteration is spent. The first is for the rest of an incomplete
# request, the second for a read into the buffer that all connections share.
OVER_BUDGET_READ_BYTES = SHORT_READ_BYTES
OVER_BUDGET_SHARED_READ_BYTES = SMALL_STEP_BYTES

# The value of `_template_latency` until the connection uses a template cache.
_NO_LATENCY = Latency()


class KafkaConnection(LargeRequestHandling, asyncio.BufferedProtocol):
    """The connection of one Kafka client. Use it only in the event loop's thread."""

    __slots__ = ("_context", "_is_deferred", "_is_held", "_is_read_deferred", "_is_reading", "_is_writable",
                 "_large_request", "_listener", "_machine", "_muted_until", "_outgoing", "_routes", "_shared",
                 "_template_cache", "_template_latency", "_transport", "_unanswered", "_unsent_bytes", "active_at",
                 "client_host", "gate", "is_draining", "login", "number", "quota", "reader", "stuck_since",
                 "views")  # fmt: skip

    def __init__(self, shared: Shared, listener: "KafkaListener") -> None:
        self._shared = shared
        self._listener = listener
        self._machine = ServerConnection(shared.apis, shared.memory, shared.network.request_bytes_max)
        self.reader = self._machine.reader
        self._transport: Any = None
        self._routes: Mapping[int, Route] = shared.routes
        # The context of the last request. It is immutable, and most requests of a connection have the same context.
        self._context: Context | None = None
        self._is_reading = True
        self._is_writable = True
        # Whether received requests wait for a scheduled chunk of this connection, or for the end of a throttle time.
        self._is_deferred = False
        self._muted_until = 0.0
        # Whether the rest of an incomplete request is read in a scheduled chunk of this connection.
        self._is_read_deferred = False
        # The task that handles a large request, or a request whose ordered phase has not ended.
        self._large_request: asyncio.Future[None] | None = None
        # Whether that request still uses the memory in which it was received, because its ordered phase has not ended.
        self._is_held = False
        self._outgoing: list[Buffer] = []
        # The template cache of the API that last used a template cache.
        self._template_cache: TemplateCache | None = None
        self._template_latency = _NO_LATENCY
        self._unanswered: set[asyncio.Future[Any]] = set()
        self.client_host = ""
        self.number = next(shared.connection_numbers)
        self.active_at = 0.0
        # The time since which the client has not read its responses, or the connection has been starved.
        self.stuck_since: float | None = None
        self._unsent_bytes = 0
        self.is_draining = False
        # The login of the client; None on a listener without SASL.
        self.login: Login | None = None
        # The same while it checks requests: before the login is complete, and if the session has an end.
        self.gate: Login | None = None
        # What the client may use. It is replaced when the client authenticates.
        self.views: Views | None = None
        # The quotas of the client, as long as `_context` is set. None if it has none, which is the usual case.
        self.quota: ConnectionQuota | None = None

    @property
    def endpoint(self) -> tuple[str, int]:
        if self._listener.advertised is not None:
            return self._listener.advertised.host, self._listener.advertised.port
        # Without an advertised address, return the address to which the client connected.
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    @property
    def descriptor(self) -> int:
        return descriptor_of(self._transport)

    @property
    def authentication(self) -> Authentication | None:
        return None if self.login is None else self.login.authentication

    @property
    def is_logging_in(self) -> bool:
        """Whether the client has to log in before other requests are handled, or authenticates again."""
        return self.gate is not None and not self.gate.authentication.is_done

    @property
    def is_frame_shared(self) -> bool:
        return self.reader.is_shared

    def reserve(self, size_bytes: int) -> bool:
        return self.reader.reserve(size_bytes)

    def release(self, size_bytes: int) -> None:
        self.reader.release(size_bytes)

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits for its response and no response is unsent."""
        return not self._machine.waiting and not self._outgoing and not self._transport.get_write_buffer_size()

    @property
    def _is_muted(self) -> bool:
        """Whether the next request waits: for a scheduled chunk, a throttle time, or the answer of a large request."""
        return self._is_deferred or self._large_request is not None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        self.active_at = perf_counter()
        if not self._listener.admit(self):
            return
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self.set_principal(self._listener.first_principal(transport, self.client_host))
        if self._listener.listener.has_sasl:
            self.gate = self.login = Login(self, self._shared, self._listener.sasl_policy)
            self._is_deferred = self._shared.defer_suspect(self)
            self._update_reading()

    @property
    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def waits_only_for(self, api: Api) -> bool:
        return self._machine.waits_only_for(api)

    def set_principal(self, principal: Principal) -> None:
        """Handle later requests with the rights and the quotas of this principal."""
        self._listener.count_principal(self, principal)
        self.views = self._shared.views_of(principal, self.client_host)
        self._routes = routes_of(self._shared.routes, self.views.names)
        # Contexts and templates have the rights of the earlier principal.
        self.forget_client()

    @property
    def principal(self) -> Principal | None:
        """The principal; None until the connection is admitted."""
        return None if self.views is None else self.views.access.principal

    def forget_client(self) -> None:
        """Decide about the client's rights and quotas again with its next request."""
        self._context = self._template_cache = self.quota = None

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._unanswered:
            future.cancel()
        self._unanswered.clear()
        if self._large_request is not None:
            self._large_request.cancel()
        if self.reader.held_bytes < POOLED_STEP_BYTES:
            self.reader.close()
        else:
            # Unmapping a large request takes time, and many connections may be closed in one loop iteration.
            schedule_chunk(self.reader.close)
        # This breaks reference cycles, so that the connection is freed without the garbage collector.
        if self.login is not None:
            self.login.authentication.close()
        self._context = self.gate = self.login = self.quota = None
        self._listener.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        reader = self.reader
        deadline = self._shared.loop_budget.deadline
        if deadline is None or perf_counter() <= deadline:
            return reader.buffer()
        return reader.buffer()[: OVER_BUDGET_SHARED_READ_BYTES if reader.is_shared else OVER_BUDGET_READ_BYTES]

    def buffer_updated(self, count: int) -> None:
        self._shared.metrics.received_bytes += count
        self.active_at = perf_counter()
        reader = self.reader
        reader.received(count)
        self._serve()
        if not reader.is_shared and self._is_reading and (reader.is_large or self._shared.loop_budget.is_spent):
            self._defer_reading()

    def _defer_reading(self) -> None:
        """Read the rest of an incomplete request in a scheduled chunk, because filling new memory takes time."""
        if not self._transport.is_closing():
            self._is_read_deferred = True
            self._update_reading()
            schedule_chunk(self._resume_reading)

    def _resume_reading(self) -> None:
        self._is_read_deferred = False
        if not self._transport.is_closing():
            self._update_reading()

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

    def pause(self) -> None:
        """Read nothing more from a connection that was not admitted."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def drain(self) -> None:
        """Accept no more requests. Close the connection when all accepted requests have been answered."""
        self.is_draining = True
        self._transport.pause_reading()
        self._is_reading = False
        self._close_if_drained()

    def note_progress(self, now: float) -> None:
        """Set `stuck_since` to `now` if the client has read bytes since the last call. Called periodically.

        The client must also read the last responses of a connection that is being closed.
        """
        if self.stuck_since is None and not self._transport.is_closing():
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        if self.stuck_since is None or unsent_bytes < self._unsent_bytes:
            self.stuck_since = now
        self._unsent_bytes = unsent_bytes

    @property
    def is_receiving(self) -> bool:
        """Whether a request was received in part, and its rest is expected from the client or waits for memory."""
        is_awaited = self._is_reading or self._is_read_deferred or self.reader.is_starved
        return self.reader.held_bytes > 0 and is_awaited and not self._is_muted and not self.is_draining

    def give_up(self) -> None:
        """Abort the connection, and release the memory of its incomplete request immediately."""
        self.reader.close()
        self._shared.starved.pop(self, None)
        self._transport.abort()

    def try_reading(self) -> None:
        """Try to continue if reading was stopped, because memory may be free again. Called periodically."""
        if not self._is_reading and not self.is_draining:
            self._serve()

    def _serve(self, deadline: float | None = None) -> None:
        """Handle the complete requests that were received, until `deadline`. Then send the responses that are ready."""
        large = self._large_request
        if self._is_deferred or large is not None or self._transport.is_closing():
            return
        is_first = self.gate is None or not self.is_logging_in
        if deadline is None:
            deadline = self._shared.loop_budget.start() if is_first else self._shared.login_deadline(self.client_host)
        machine, reader, bound = self._machine, self.reader, self._shared.network.inflight_max
        waiting = machine.waiting
        ready: list[Buffer] = []
        ready_bytes = 0
        try:
            while self._is_writable and not self.is_draining and len(waiting) < bound:
                frame = reader.next_frame()
                if frame is None:
                    break
                if is_first:
                    is_first = False
                elif perf_counter() > deadline:
                    reader.put_back(frame)
                    self._is_deferred = True
                    self._shared.defer(self)
                    break
                if self.gate is not None and self.gate.check_frame(frame):
                    self._hold_raw_token(self.gate.answer_raw(frame))
                    break
                cache = self._template_cache
                if self.quota is None:
                    answer = None if cache is None else cache.answer(frame)
                else:
                    answer = None if cache is None else self.quota.answer(cache, frame)
                    if self._is_muted:  # no further request is handled
                        bound = 0
                if answer is None:
                    chunks = self._handle(machine.open(frame), frame)
                    if self._large_request is not None:
                        break
                    if self._is_muted:
                        bound = 0
                    for chunk in chunks:
                        ready.append(chunk)
                        ready_bytes += len(chunk)
                elif waiting or type(answer) is not bytes:
                    self._wait_for_frame(answer)
                else:
                    self._template_latency.observe(perf_counter() - self.active_at)
                    ready.append(answer)
                    ready_bytes += len(answer)
                if ready_bytes > UNSENT_BYTES_MAX:
                    # This bounds the memory for responses if the client sends many requests and reads no responses.
                    self._write(ready, ready_bytes)
                    self.send()
                    ready, ready_bytes = [], 0
                    if self._transport.is_closing():
                        return
        except (WireError, DropConnection) as problem:
            self._fail(str(problem))
            return
        except Exception:
            log_failed_handler(self)
            self._fail("a handler failed")
            return
        finally:
            # Release the frames that were handled, except the frame of a request whose ordered phase has not ended.
            if not self._is_held:
                reader.settle()
        if ready:
            self._write(ready, ready_bytes)
        self._update_reading()

    def mute(self, seconds: float) -> None:
        """Read and handle no request for this time, because of a quota or a limit. A handler may call this."""
        if self._transport.is_closing():
            return
        self._muted_until = max(self._muted_until, perf_counter() + seconds)
        if not self._is_deferred:
            self._is_deferred = True
            asyncio.get_running_loop().call_later(min(seconds, MUTE_STEP_SECONDS), self.serve_deferred)
            self._update_reading()

    def serve_deferred(self) -> None:
        now = perf_counter()
        if self._muted_until > now and not self._transport.is_closing():
            step = min(self._muted_until - now, MUTE_STEP_SECONDS)
            asyncio.get_running_loop().call_later(step, self.serve_deferred)
            return
        self._is_deferred = False
        self._serve(now + BUDGET_SECONDS)

    def _hold_raw_token(self, answer: Coroutine[None, None, bytes]) -> None:
        """Handle no later frame until a token without a request header is answered."""
        pending = PendingResponse()
        self._machine.wait(pending)
        self._large_request = asyncio.ensure_future(self._finish_raw_token(pending, answer))
        self._large_request.add_done_callback(lambda done: answer.close())

    async def _finish_raw_token(self, pending: PendingResponse, answer: Awaitable[bytes]) -> None:
        try:
            framed = await answer
        except DropConnection as problem:
            self._fail(str(problem))
            return
        self._large_request = None
        if not self._transport.is_closing():
            self._send_ready(self._machine.answer_framed(pending, [framed]), _NO_LATENCY, self.active_at)

    def _wait_for_frame(self, answer: bytes | DeferredFrame) -> None:
        """Queue the response of a templated request, because it is deferred or earlier responses are pending."""
        pending = PendingResponse()
        self._machine.wait(pending)
        if isinstance(answer, DeferredFrame):
            answer.on_complete(partial(self._send_framed, pending, self._template_latency, self.active_at))
        else:
            self._template_latency.observe(perf_counter() - self.active_at)
            pending.answer = [answer]

    def _send_framed(self, pending: PendingResponse, latency: Latency, began: float, frame: bytes) -> None:
        """Send the deferred response of a templated request."""
        if not self._transport.is_closing():
            self._send_ready(self._machine.answer_framed(pending, [frame]), latency, began)

    def _handle(self, request: Request, frame: memoryview) -> list[Buffer]:
        route = self._routes[request.api.key]
        version = request.version
        if request.body is None:
            return self._machine.answer_now(request, route.encode(version, refuse_version()))
        began = perf_counter()
        try:
            decoded = route.decode(version, request.body)
        except TooManyElements:
            if self.is_logging_in:
                raise
            self.reader.put_back(frame)
            request.body = None
            self._machine.wait(request)
            self._large_request = asyncio.ensure_future(self._handle_large(route, request, began))
            return []
        context = self._context_of(request)
        if self.quota is None:
            answer = route.handle(context, decoded)
        else:
            answer = self.quota.handle(route, context, decoded, len(frame), began)
        if type(answer) is BlockingContinuation:
            self._hold(route, request, answer, began)
            return []
        is_later = type(answer) is not route.response and answer is not None
        if route.template_cache is not None and answer is not None:
            if self._template_cache is None or self._template_latency is not route.latency:
                self._template_cache, self._template_latency = route.template_cache(), route.latency
            self._template_cache.update(context, frame, decoded, None if is_later else answer)
        if is_later:
            self._answer_later(route, request, answer, began)
            return []
        ready = self._machine.answer_now(request, None if answer is None else route.encode(version, answer))
        route.latency.observe(perf_counter() - began)
        return ready

    def _context_of(self, request: Request) -> Context:
        context = self._context
        if context is None or context.api_version != request.version or context.client_id is not request.client_id:
            if self.views is None:
                raise DropConnection("the connection was not admitted")
            if context is None or context.client_id is not request.client_id:
                self.quota = self._shared.quota_of(self, request.client_id)
                # Requests that fit a template have the client id of the request that it was created from.
                self._template_cache = None
            shared, quota = self._shared, None if self.quota is None else self.quota.client
            limits, client_id = shared.limits_of(self.views.access.principal), request.client_id
            context = Context(shared.services, self, request.version, client_id, self.views, quota, limits)
            self._context = context
        return context

    def _hold(self, route: Route, request: Request, held: BlockingContinuation, began: float) -> None:
        """Handle no later request until the ordered phase of this request has ended."""
        self._machine.wait(request)
        # If the request was received in shared memory, its handler has copied it.
        self._is_held = held.keeps_frame and not self.reader.is_shared
        if not held.keeps_frame:
            request.body = None
        self._large_request = asyncio.ensure_future(self._finish_held(route, request, held, began))
        # If the connection ends before the task has begun, the coroutine is never awaited.
        self._large_request.add_done_callback(lambda done: held.rest.close())

    async def _finish_held(self, route: Route, request: Request, held: BlockingContinuation, began: float) -> None:
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
        self._is_held, self._large_request = False, None
        if self._transport.is_closing():
            return
        if is_later:
            self._await_answer(route, request, answer, began)
            self._serve()
        elif self.gate is not None and self.gate.authentication.is_failed:
            ready = self._machine.answer_later(request, chunks)
            self._write(ready, sum(map(len, ready)))
            self.close()
        else:
            self._send_ready(self._machine.answer_later(request, chunks), route.latency, began)

    def _answer_later(self, route: Route, request: Request, answer: Awaitable[Any], began: float) -> None:
        self._machine.wait(request)
        self._await_answer(route, request, answer, began)

    def _await_answer(self, route: Route, request: Request, answer: Awaitable[Any], began: float) -> None:
        # The frame is released while the response is awaited, so the request must not refer to it.
        request.body = None
        future = asyncio.ensure_future(answer)
        self._unanswered.add(future)
        future.add_done_callback(lambda done: self._answered(route, request, done, began))

    def _answered(self, route: Route, request: Request, future: "asyncio.Future[Any]", began: float) -> None:
        self._unanswered.discard(future)
        if future.cancelled() or self._transport.is_closing():
            return
        try:
            answer = future.result()
            chunks = None if answer is None else route.encode(request.version, answer)
        except Exception:
            self._fail_handler(request)
            return
        self._send_ready(self._machine.answer_later(request, chunks), route.latency, began)

    def _send_ready(self, ready: list[Buffer], latency: Latency, began: float) -> None:
        """Send the responses that became ready when a deferred response was completed, and handle further requests."""
        self.active_at = ended = perf_counter()
        latency.observe(ended - began)
        if ready:
            self._write(ready, sum(map(len, ready)))
        if self.is_draining:
            self._close_if_drained()
        elif not self._is_reading:
            self._serve()

    def _close_if_drained(self) -> None:
        # Unsent bytes need not be awaited, because a transport sends them before it closes.
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
        """Write all ready responses to the socket."""
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

    def _update_reading(self) -> None:
        """Resume or pause reading, depending on the limits."""
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
            and not self._is_read_deferred
            and self._large_request is None
            and len(self._machine.waiting) < self._shared.network.inflight_max
        )
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _end_large_request(self) -> None:
        self._large_request = None

    def _fail_handler(self, request: Request) -> None:
        """Log the current exception and close the connection. Called in an `except` clause."""
        log_failed_handler(self, request)
        self._fail(f"{request.api.name} failed")

    def _fail(self, reason: str) -> None:
        self._shared.metrics.connections_failed += 1
        log_closed(self._shared.rate_limited_log, self, reason)
        self._transport.abort()

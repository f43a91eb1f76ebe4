"""A Kafka client's connection: the shell around `wire/connection.py` that has a socket, and calls handlers.

Bytes are read into the memory the frame reader names, requests are handled in order inside the callback that brought
them, answers of one callback leave in one write. Only an answer that has to wait becomes a future. Reading stops while
answers are not taken, while too many requests wait, or while the memory for requests is used up.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.descriptors import Descriptors, descriptor_of
from kwire.errors import KafkaError
from kwire.handlers.api_versions import refuse_version
from kwire.handlers.context import Context, DropConnection, DurableAnswer, Handler, Services, Shortcut
from kwire.metrics import Latency, ServerMetrics
from kwire.server.complaints import Complaints
from kwire.wire.codec import decoder, encoder
from kwire.wire.connection import Request, ServerConnection, Turn
from kwire.wire.errors import WireError
from kwire.wire.frame import ReceiveMemory
from kwire.wire.schema import Api
from kwire.wire.types import Buffer

if TYPE_CHECKING:
    from kwire.server.listener import Door

log = logging.getLogger("kwire.server")

UNSENT_BYTES_MAX = 1024 * 1024


class Route:
    """The way of one API's requests: its handler, its latency, and its codecs by version, made when first needed."""

    __slots__ = ("_decoders", "_encoders", "api", "handle", "latency", "response", "shortcut")

    def __init__(self, handler: Handler, latency: Latency) -> None:
        self.api = handler.api
        self.handle = handler.handle
        self.shortcut = handler.shortcut
        self.response = handler.api.response
        self.latency = latency
        self._decoders: dict[int, Callable[[Buffer], Any]] = {}
        self._encoders: dict[int, Callable[[Any], list[Buffer]]] = {}

    def decode(self, version: int, body: Buffer) -> Any:
        made = self._decoders.get(version)
        if made is None:
            made = self._decoders[version] = decoder(self.api.request, version)
        return made(body)

    def encode(self, version: int, answer: Any) -> list[Buffer]:
        made = self._encoders.get(version)
        if made is None:
            made = self._encoders[version] = encoder(self.response, version)
        return made(answer)


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
        self.memory = ReceiveMemory(network.requests_bytes_max if network.requests_bytes_max > 0 else 2**62)
        self.outbox = Outbox()
        self.complaints = Complaints(log)
        self.connections: set[KafkaConnection] = set()
        self.connections_by_host: Counter[str] = Counter()


class KafkaConnection(asyncio.BufferedProtocol):
    """One socket. All methods run in the event loop."""

    __slots__ = ("_context", "_door", "_is_reading", "_is_writable", "_machine", "_outgoing", "_reader", "_shared",
                 "_shortcut", "_shortcut_latency", "_transport", "_unanswered", "_unsent_bytes", "active_at",
                 "client_host", "is_draining", "stuck_since")  # fmt: skip

    def __init__(self, shared: Shared, door: "Door") -> None:
        self._shared = shared
        self._door = door
        self._machine = ServerConnection(shared.apis, shared.memory, shared.network.request_bytes_max)
        self._reader = self._machine.reader
        self._transport: Any = None
        self._context = Context(shared.services, self, 0, None)
        self._is_reading = True
        self._is_writable = True
        self._outgoing: list[Buffer] = []
        # At most one API has a shortcut; it opens when that API has been used.
        self._shortcut: Shortcut | None = None
        self._shortcut_latency: Latency | None = None
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
    def is_quiet(self) -> bool:
        """Nothing is being received, waits, or is unsent."""
        return not self._machine.waiting and not self._outgoing and not self._transport.get_write_buffer_size()

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
        self._reader.close()
        self._door.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self._shared.metrics.received_bytes += count
        self.active_at = perf_counter()
        self._reader.received(count)
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

    def try_reading(self) -> None:
        """Called from time to time while reading is stopped: memory for requests may be free again."""
        if not self._is_reading and not self.is_draining:
            self._serve()

    def _serve(self) -> None:
        """Handle every whole request that is here, then send the answers that are ready."""
        if self._transport.is_closing():
            return
        machine, reader, bound = self._machine, self._reader, self._shared.network.inflight_max
        waiting = machine.waiting
        ready: list[Buffer] = []
        ready_bytes = 0
        try:
            while self._is_writable and not self.is_draining and len(waiting) < bound:
                frame = reader.next_frame()
                if frame is None:
                    break
                chunks = self._take_shortcut(frame)
                if chunks is None:
                    chunks = self._handle(machine.open(frame), frame)
                for chunk in chunks:
                    ready.append(chunk)
                    ready_bytes += len(chunk)
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
            reader.settle()
        if ready:
            self._write(ready, ready_bytes)
        self._turn_reading()

    def _take_shortcut(self, frame: memoryview) -> Sequence[Buffer] | None:
        """The answer to a request that is like the one before, if there is a way to have it without looking closely."""
        if self._shortcut is None:
            return None
        answer = self._shortcut.answer(frame)
        if answer is None:
            return None
        if isinstance(answer, DurableAnswer):
            self._answer_when_durable(answer)
            return ()
        assert self._shortcut_latency is not None
        self._shortcut_latency.observe(perf_counter() - self.active_at)
        if not self._machine.waiting:
            return (answer,)
        turn = Turn()
        turn.answer = [answer]
        self._machine.wait(turn)
        return ()

    def _answer_when_durable(self, answer: DurableAnswer) -> None:
        turn, began, left = Turn(), self.active_at, len(answer.ends)
        failures: dict[int, KafkaError] = {}
        self._machine.wait(turn)

        def reached(index: int, error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failures[index] = error
            if not left and not self._transport.is_closing():
                assert self._shortcut is not None
                assert self._shortcut_latency is not None
                framed = self._shortcut.with_failures(answer, failures) if failures else answer.framed
                self._send_on(self._machine.answer_framed(turn, [framed]), self._shortcut_latency, began)

        for index, partition, end in answer.ends:
            partition.on_reached(end, partial(reached, index), answer.timeout_ms)

    def _handle(self, request: Request, frame: memoryview) -> list[Buffer]:
        shared = self._shared
        route = shared.routes[request.api.key]
        version = request.version
        if request.body is None:
            return self._machine.answer_now(request, route.encode(version, refuse_version()))
        began = perf_counter()
        decoded = route.decode(version, request.body)
        context = self._context
        if context.api_version != version or context.client_id is not request.client_id:
            # Most requests of a connection are alike; a context never changes, so one serves them all.
            context = self._context = Context(shared.services, self, version, request.client_id)
        answer = route.handle(context, decoded)
        is_later = type(answer) is not route.response and answer is not None
        if route.shortcut is not None and answer is not None:
            if self._shortcut is None:
                self._shortcut, self._shortcut_latency = route.shortcut(), route.latency
            self._shortcut.learn(context, frame, decoded, None if is_later else answer)
        if is_later:
            self._answer_later(request, answer, began)
            return []
        ready = self._machine.answer_now(request, None if answer is None else route.encode(version, answer))
        route.latency.observe(perf_counter() - began)
        return ready

    def _answer_later(self, request: Request, answer: Awaitable[Any], began: float) -> None:
        self._machine.wait(request)
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
            log.exception("%s failed; the connection from %s is closed", request.api.name, self.client_host)
            self._fail(f"{request.api.name} failed")
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
        if not self._outgoing:
            self._shared.outbox.add(self)
        self._outgoing += chunks

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
        is_starved = self._reader.is_starved
        if is_starved:
            self.stuck_since = self.stuck_since or perf_counter()
        elif self._is_writable:
            self.stuck_since = None
        may_read = (
            self._is_writable
            and not is_starved
            and not self.is_draining
            and len(self._machine.waiting) < self._shared.network.inflight_max
        )
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _fail(self, reason: str) -> None:
        self._shared.metrics.connections_failed += 1
        self._shared.complaints.add("closing the connection from %s: %s", self.client_host, reason)
        self._transport.abort()

"""A WebSocket of rooms: commands in, answers, events and marks out.

Publishing never waits for what was published before: answers come when the events are durable, in the order in which
that happens, which inside one room is the order of the commands. Every other command waits until all before it are
answered, and those behind it wait for it. So an answer comes before any event that its command causes, and who
subscribes and then publishes sees the event. Reading stops while commands wait, while too many publishes are
unanswered, and while the client takes nothing. Of what came at once so much is taken in one turn of the loop, so that
one client's flood holds up nobody else. A close, whoever wants it, comes behind the answers to what was asked before;
nothing comes behind a close.

A large history is sent as one message in several frames, the next when the client has taken those before; events and
answers wait until the message ends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.json import Encoder

from kwire.broker.chunking import call_in_turn
from kwire.broker.events.publishing import Outcome, Published
from kwire.broker.subscriptions import Subscription
from kwire.broker.subscriptions.marks import STOPPING, Closed, Mark
from kwire.broker.subscriptions.portions import Portion
from kwire.errors import KafkaError, RoomNotFound, StreamError, SubscriptionFailed
from kwire.streams.log import StreamLog
from kwire.web.errors import BadRequest, Refusal, error_body
from kwire.web.event_json import new_event, source_of
from kwire.web.large_answers import PIECE_BYTES
from kwire.web.memory import UNCOUNTED_BYTES
from kwire.web.rooms.commands import (
    NO_ID,
    History,
    HistoryPayload,
    Publish,
    PublishPayload,
    Subscribe,
    SubscribePayload,
    UnsubscribePayload,
    decode_command,
    history_parts,
    publish_result,
    request_id_of,
)
from kwire.web.rooms.encodings import facts_json, socket_events, socket_mark
from kwire.web.services import WebServices
from kwire.web.socket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    GOING_AWAY,
    PING,
    PONG,
    TEXT,
    TRY_AGAIN_LATER,
    Failure,
    FrameReader,
    answer_to_close,
    close_frame,
    frame,
    text_frame,
)
from kwire.web.socket_intake import MessageIntake
from kwire.web.socket_upkeep import SocketUpkeep
from kwire.web.streaming import Outlet

log = logging.getLogger("kwire.web")

# Publishes of one connection that wait to be durable.
UNANSWERED_MAX = 10_000
SUBSCRIPTIONS_MAX = 1000

_encode = Encoder().encode


class SocketSession:
    """One connection: a session for the connection's bytes, and a sink for its subscriptions."""

    __slots__ = ("_call_soon", "_goodbye", "_is_busy", "_is_closing", "_is_deaf", "_is_inside_message", "_is_lost",
                 "_is_open", "_is_reading_on", "_is_single", "_message", "_outlet", "_reader", "_ready", "_services",
                 "_subscriptions", "_task", "_unanswered", "_until_writable", "_upkeep", "_waiting")  # fmt: skip

    _outlet: Outlet

    def __init__(self, services: WebServices, is_single: bool = False) -> None:
        """`is_single`: the connection is for one subscription, and ends with it."""
        self._services = services
        self._is_single = is_single
        self._reader = FrameReader(services.config.web.socket_message_bytes_max)
        self._call_soon = asyncio.get_running_loop().call_soon
        self._subscriptions: dict[str, Subscription] = {}
        # Frames that leave together at the end of this turn of the loop.
        self._ready: list[bytes] = []
        # Texts that wait for a command before them that takes its time, or for the client to take what it has asked.
        self._waiting: deque[bytearray] = deque()
        self._is_busy = False
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        self._is_open = self._is_lost = False
        # How the connection will end when everything before is answered. Then the close frame is sent; that is closing.
        self._goodbye: Failure | None = None
        self._is_closing = False
        # The client has said its last word.
        self._is_deaf = False
        self._is_reading_on = False
        # Frames of a message were sent, but not its last.
        self._is_inside_message = False
        # Set while the rest of a message waits for the client to take what was sent of it.
        self._until_writable: asyncio.Future[None] | None = None
        self._upkeep = SocketUpkeep(services)
        self._message = MessageIntake(services)

    def open(self, outlet: Outlet) -> "SocketSession":
        self._outlet = outlet
        self._is_open = True
        return self

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> "SocketSession":
        """With a subscription that was made before the connection was a WebSocket."""
        self.open(outlet)
        if subscription.is_closed:
            self._close(GOING_AWAY, "the subscription has ended")
            return self
        self._subscriptions[subscription.name] = subscription
        self._send_result(NO_ID, _encode(facts_json(subscription.name, subscription.facts)))
        subscription.begin()
        return self

    # --- what the client sends

    def received(self, data: bytes) -> None:
        self._upkeep.is_heard = True
        if not self._is_deaf:
            self._take(data)

    def _take(self, data: bytes) -> None:
        pinged: bytearray | None = None
        for opcode, payload in self._reader.feed(data):
            if opcode == TEXT:
                if self._goodbye is not None or self._is_closing:
                    continue
                if self._is_busy or self._waiting or not self._outlet.is_writable:
                    self._waiting.append(payload)
                else:
                    self._do(payload)
            elif opcode == PING:
                # Of several that came together the last one is answered.
                pinged = payload
            elif opcode == CLOSE:
                self._hear_no_more(answer_to_close(payload))
                break
            elif opcode == BINARY:
                self._send_error(NO_ID, BadRequest("commands are sent as text, not binary", code="InvalidCommand"))
        if pinged is not None:
            self._send(frame(PONG, bytes(pinged)))
        if self._reader.failure is not None and not self._is_deaf:
            self._services.stream_metrics.closed_violating += 1
            self._hear_no_more(self._reader.failure)
        elif self._reader.held_bytes > UNCOUNTED_BYTES:
            self._check_message(asyncio.get_running_loop().time())
        self._leave_if_done()
        self._turn_reading()

    def _check_message(self, now: float) -> None:
        """End the connection if the message that is on its way in comes too slowly, or if there is no room for it."""
        failure = self._message.check(now, self._reader, self._may_read())
        if failure is not None and not self._is_deaf:
            self._reader.give_up(failure)
            self._message.release()
            self._hear_no_more(failure)

    def _read_on(self) -> None:
        """Take more of what came, if nothing has changed meanwhile."""
        self._is_reading_on = False
        if self._is_lost or self._is_deaf or not self._may_read():
            return
        try:
            self._take(b"")
        except Exception:
            log.exception("a socket failed; its connection is closed")
            self._outlet.abort()

    def _hear_no_more(self, goodbye: Failure) -> None:
        self._is_deaf = True
        if self._goodbye is None:
            self._goodbye = goodbye

    def _leave_if_done(self) -> None:
        if self._goodbye is None or self._is_lost:
            return
        if not self._is_closing:
            if self._is_busy or self._waiting or self._unanswered:
                return
            self._close(*self._goodbye)
        if self._is_deaf:
            self._outlet.finish()

    def _do(self, message: bytearray) -> bool:
        """Run a command; False if it has to wait for those before it."""
        try:
            command = decode_command(message)
        except Refusal as error:
            self._send_error(request_id_of(message), error)
            return True
        if type(command) is Publish:
            self._publish(command)
        elif self._unanswered:
            self._waiting.appendleft(message)
            return False
        elif type(command) is Subscribe:
            self._begin(command.request_id, self._subscribe(command.request_id, command.payload))
        elif type(command) is History:
            self._begin(command.request_id, self._history(command.request_id, command.payload))
        else:
            self._unsubscribe(command.request_id, command.payload)  # type: ignore[arg-type]
        self._services.stream_metrics.commands += 1
        return True

    def _publish(self, command: Publish) -> None:
        services, payload, request_id = self._services, command.payload, command.request_id
        try:
            event = new_event(payload)
            room = services.rooms.get(payload.room)
        except RoomNotFound:
            self._begin(request_id, self._create_and_publish(request_id, payload))
            return
        except (StreamError, KafkaError) as error:
            self._send_error(request_id, error)
            return
        self._unanswered += 1
        done = partial(self._published, request_id, room.log)
        services.publisher.publish(room.log, source_of(room.name), (event,), done)

    def _published(self, request_id: Raw, published: StreamLog, outcome: Outcome) -> None:
        self._unanswered -= 1
        if self._is_lost:
            return
        if type(outcome) is Published:
            notified = self._services.subscriptions.count_of(published)
            self._send_result(request_id, publish_result(outcome.event_ids[0], outcome.offset, notified))
        else:
            assert isinstance(outcome, Exception)
            self._send_error(request_id, outcome)
        if not self._unanswered and (self._waiting or self._goodbye is not None):
            self._go_on()

    # --- commands that take their time

    def _begin(self, request_id: Raw, work: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._task = asyncio.ensure_future(self._run(request_id, work))

    async def _run(self, request_id: Raw, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, StreamError | KafkaError | Refusal | ConnectionError):
                log.exception("a command failed")
            if self._is_inside_message:
                # Only a broken connection tells that a message has no end.
                self._outlet.abort()
            else:
                self._send_error(request_id, error)
        self._is_busy, self._task = False, None
        self._go_on()

    def _go_on(self) -> None:
        """Take up the commands that wait. Who does not take answers gets no more of them to take."""
        while self._waiting and not self._is_busy and not self._is_lost and self._outlet.is_writable:
            if not self._do(self._waiting.popleft()):
                break
        self._leave_if_done()
        self._turn_reading()

    async def _create_and_publish(self, request_id: Raw, payload: PublishPayload) -> None:
        services = self._services
        room = await services.rooms.get_or_create(payload.room)
        # The rest as if the room had been there: its answer comes when it is durable.
        self._unanswered += 1
        done = partial(self._published, request_id, room.log)
        services.publisher.publish(room.log, source_of(room.name), (new_event(payload),), done)

    async def _subscribe(self, request_id: Raw, payload: SubscribePayload) -> None:
        services, name = self._services, payload.room
        if name in self._subscriptions:
            raise SubscriptionFailed(f"this connection is subscribed to {name!r} already")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise SubscriptionFailed(f"a connection may have {SUBSCRIPTIONS_MAX} subscriptions")
        start, options = payload.start(), payload.options()
        room = await services.rooms.get_or_create(name)
        subscription = await services.subscriptions.subscribe(name, room.log, start, self, options)
        if self._is_lost or self._is_closing:
            subscription.close()
            return
        self._subscriptions[name] = subscription
        self._send_result(request_id, _encode(facts_json(name, subscription.facts)))
        subscription.begin()

    def _unsubscribe(self, request_id: Raw, payload: UnsubscribePayload) -> None:
        subscription = self._subscriptions.pop(payload.room, None)
        if subscription is not None:
            subscription.close()
        else:
            try:
                self._services.rooms.get(payload.room)
            except (StreamError, KafkaError) as error:
                self._send_error(request_id, error)
                return
        self._send_result(request_id, b'{"success":true}' if subscription is not None else b'{"success":false}')

    async def _history(self, request_id: Raw, payload: HistoryPayload) -> None:
        parts = await history_parts(self._services, payload)
        pending = [b'{"result":' if request_id is NO_ID else b'{"request_id":%b,"result":' % bytes(request_id)]
        size_bytes = 0
        async with aclosing(parts):
            async for part in parts:
                pending.append(part)
                size_bytes += len(part)
                if size_bytes > PIECE_BYTES:
                    data, size_bytes = b"".join(pending), 0
                    pending.clear()
                    await self._send_frame(data)
        pending.append(b"}")
        data = b"".join(pending)
        if self._is_inside_message:
            self._end_message(data)
        else:
            self._send(text_frame(data))

    # --- what the client gets

    async def _send_frame(self, data: bytes) -> None:
        """Begin or continue a message; returns when the client has taken most of it, raises when it is gone."""
        if not self._is_closing and not self._is_lost:
            opcode = CONTINUATION if self._is_inside_message else TEXT
            self._flush()
            self._is_inside_message = True
            self._outlet.write(frame(opcode, data, is_final=False))
            if not self._outlet.is_writable:
                self._until_writable = asyncio.get_running_loop().create_future()
                await self._until_writable
        if self._is_closing or self._is_lost:
            raise ConnectionResetError("the client is gone")

    def _end_message(self, data: bytes) -> None:
        self._outlet.write(frame(CONTINUATION, data))
        self._is_inside_message = False
        self._flush()
        self._resume_subscriptions()

    def _go_on_with_message(self) -> None:
        waiter, self._until_writable = self._until_writable, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _send_result(self, request_id: Raw, result: bytes) -> None:
        if request_id is NO_ID:
            self._send(text_frame(b'{"result":%b}' % result))
        else:
            self._send(text_frame(b'{"request_id":%b,"result":%b}' % (bytes(request_id), result)))

    def _send_error(self, request_id: Raw, error: Exception) -> None:
        body = {"error": error_body(error)}
        self._send(text_frame(_encode(body if request_id is NO_ID else {"request_id": request_id, **body})))

    def _send(self, made: bytes) -> None:
        if self._is_closing:
            return
        if not self._ready:
            self._call_soon(self._flush)
        self._ready.append(made)

    def _flush(self) -> None:
        ready = self._ready
        if ready and not self._is_inside_message:
            self._ready = []
            self._outlet.write(ready[0] if len(ready) == 1 else b"".join(ready))
            self._turn_reading()

    def is_writable(self) -> bool:
        return self._is_open and self._outlet.is_writable and not self._is_inside_message

    def send_events(self, subscription: Subscription, portion: Portion) -> None:
        if self._ready:
            self._flush()
        self._outlet.write(portion.encoded(socket_events))

    def send_mark(self, subscription: Subscription, mark: Mark) -> None:
        if not self._is_open or self._is_lost or self._is_closing:
            return
        self._ready.append(socket_mark(subscription.name, mark))
        self._flush()
        if type(mark) is Closed:
            if self._subscriptions.get(subscription.name) is subscription:
                del self._subscriptions[subscription.name]
            if self._is_single:
                code = GOING_AWAY if mark.code == STOPPING else TRY_AGAIN_LATER
                self._close(code, f"{mark.code} offset={mark.offset}")

    # --- how fast, how long

    def writable(self) -> None:
        self._go_on_with_message()
        self._resume_subscriptions()
        self._go_on()

    def _resume_subscriptions(self) -> None:
        for subscription in tuple(self._subscriptions.values()):
            subscription.resume()

    def _may_read(self) -> bool:
        return (
            self._is_closing
            or self._is_deaf
            or (self._outlet.is_writable and not self._waiting and self._unanswered < UNANSWERED_MAX)
        )

    def _turn_reading(self) -> None:
        if not self._may_read():
            self._outlet.pause_reading()
        elif self._reader.is_behind and not self._is_deaf:
            self._outlet.pause_reading()
            if not self._is_reading_on:
                self._is_reading_on = True
                # In a turn that all such connections share: many of them must not each take a part of every iteration.
                call_in_turn(self._read_on)
        else:
            self._outlet.resume_reading()

    def tick(self, now: float) -> None:
        if self._is_closing:
            self._upkeep.tick_closing(now, self._outlet)
        else:
            self._upkeep.tick_open(now, self._outlet, is_read_from=not self._waiting)
            self._check_message(now)
            self._leave_if_done()

    def stop(self) -> None:
        """Subscriptions have been told already; what was begun is answered, what waits is not."""
        self._waiting.clear()
        if self._goodbye is None:
            self._goodbye = Failure(GOING_AWAY, "the server is stopping")
        self._leave_if_done()

    def _close(self, code: int, reason: str) -> None:
        """Say the last word, and wait for the client's."""
        self._flush()
        self._ready.clear()
        self._is_closing = True
        self._drop_everything()
        self._outlet.write(close_frame(code, reason))
        self._turn_reading()

    def lost(self) -> None:
        self._is_lost = True
        self._message.release()
        self._drop_everything()

    def _drop_everything(self) -> None:
        self._go_on_with_message()
        self._waiting.clear()
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()

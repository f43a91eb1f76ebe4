"""The WebSocket of rooms. The client sends commands, the server sends answers, events and control messages.

A publish command does not wait for earlier publish commands. It is answered when its event is durable. Within one room
the answers have the order of the commands. Every other command waits until all earlier commands are answered, and later
commands wait until this command is answered. So the answer to a subscribe command precedes the events of the
subscription, and a client that subscribes and then publishes receives the published event.

The session stops reading in three cases: a command waits, UNANSWERED_MAX publish commands are unanswered, or the client
does not read. The frames of one read are processed in chunks. The session yields to the event loop between chunks, so
that one client does not delay other clients. The close frame is the last frame: it is sent after the answers to all
earlier commands.

A large history is sent as one message in several frames. Each frame is sent when the outlet (the sending side of the
connection) is writable again. Events and answers wait until the message is complete.
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

from kwire.access.acl import Operation
from kwire.access.audit.entries import current_actor, set_actor
from kwire.access.principal import Principal
from kwire.concurrency.chunking import schedule_chunk
from kwire.errors import KafkaError, RoomNotFound, StreamError, SubscriptionFailed
from kwire.streams.events.event import NewEvent
from kwire.streams.events.publishing import Outcome, Published
from kwire.streams.log import StreamLog
from kwire.streams.rooms.interface import OpenRoom
from kwire.streams.subscriptions import Subscription
from kwire.streams.subscriptions.control_messages import Closed, ControlMessage
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.answers.event_json import new_event, source_of
from kwire.web.answers.large_answers import PIECE_BYTES
from kwire.web.requests.access import FORBIDDEN, RequestAccess
from kwire.web.requests.key_limits import SubscriptionSlot, admit_events
from kwire.web.requests.memory import UNCOUNTED_BYTES
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
from kwire.web.rooms.encodings import facts_json, socket_control, socket_events
from kwire.web.rooms.rooms import room_to_use
from kwire.web.services import RoomServices
from kwire.web.streaming.close_codes import close_code_of
from kwire.web.streaming.streaming import Outlet
from kwire.web.streaming.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    GOING_AWAY,
    PING,
    POLICY_VIOLATION,
    PONG,
    TEXT,
    Failure,
    FrameReader,
    answer_to_close,
    close_frame,
    frame,
    text_frame,
)
from kwire.web.streaming.websocket_keepalive import WebSocketKeepalive
from kwire.web.streaming.websocket_message_limits import MessageLimits

log = logging.getLogger("kwire.web")

# The maximum number of publish commands of one connection that are not answered yet.
UNANSWERED_MAX = 10_000
SUBSCRIPTIONS_MAX = 1000

_encode = Encoder().encode


class SocketSession:
    """One WebSocket: the session of its connection, and the sink of its subscriptions."""

    __slots__ = ("_access", "_actor", "_call_soon", "_is_busy", "_is_closing", "_is_input_ended", "_is_lost",
                 "_is_message_open", "_is_open", "_is_resume_scheduled", "_is_single", "_keepalive", "_message_limits",
                 "_outlet", "_pending_close", "_reader", "_ready", "_services", "_slots", "_subscriptions", "_task",
                 "_unanswered", "_until_writable", "_waiting")  # fmt: skip

    _outlet: Outlet

    def __init__(self, services: RoomServices, access: RequestAccess, is_single: bool = False) -> None:
        """Create a session. If `is_single`, the session closes the connection after it has sent a `closed` message."""
        self._services = services
        # Each command is authorized when it runs.
        self._access = access
        # Commands run in tasks of their own, which do not inherit the actor of the request that opened the WebSocket.
        self._actor = current_actor()
        self._is_single = is_single
        self._reader = FrameReader(services.port.config.web.socket_message_bytes_max)
        self._call_soon = asyncio.get_running_loop().call_soon
        # By the names of the rooms that the client uses.
        self._subscriptions: dict[str, Subscription] = {}
        # The slots of the client's key that these subscriptions hold.
        self._slots: dict[Subscription, SubscriptionSlot] = {}
        # Frames that are sent together at the end of this loop iteration.
        self._ready: list[bytes] = []
        # Commands that wait until earlier commands are answered, or until the outlet is writable.
        self._waiting: deque[bytearray] = deque()
        self._is_busy = False
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        self._is_open = self._is_lost = False
        # The code and reason of the close frame that is sent when all earlier commands are answered. `_is_closing` is
        # set when the close frame is sent.
        self._pending_close: Failure | None = None
        self._is_closing = False
        # Set when the client has sent its close frame or violated a limit or the protocol. Later bytes are ignored.
        self._is_input_ended = False
        self._is_resume_scheduled = False
        # Set while a message in several frames is sent: from its first frame until its final frame.
        self._is_message_open = False
        # Set while the rest of a message in several frames waits until the outlet is writable.
        self._until_writable: asyncio.Future[None] | None = None
        self._keepalive = WebSocketKeepalive(services.port)
        self._message_limits = MessageLimits(services.port)

    def open(self, outlet: Outlet) -> "SocketSession":
        self._outlet = outlet
        self._is_open = True
        return self

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> "SocketSession":
        """Open the session with a subscription that was created before the WebSocket handshake."""
        self.open(outlet)
        if subscription.is_closed:
            self._close(GOING_AWAY, "the subscription has ended")
            return self
        self._subscriptions[subscription.name] = subscription
        self._send_result(NO_ID, _encode(facts_json(subscription.name, subscription.facts)))
        subscription.begin()
        return self

    @property
    def protocol(self) -> str:
        return "websocket"

    @property
    def principal(self) -> Principal:
        return self._access.principal

    # --- input

    def received(self, data: bytes) -> None:
        self._keepalive.has_received = True
        if not self._is_input_ended:
            self._take(data)

    def _take(self, data: bytes) -> None:
        pinged: bytearray | None = None
        for opcode, payload in self._reader.feed(data):
            if opcode == TEXT:
                if self._pending_close is not None or self._is_closing:
                    continue
                if self._is_busy or self._waiting or not self._outlet.is_writable:
                    self._waiting.append(payload)
                else:
                    self._run_command(payload)
            elif opcode == PING:
                # If several pings are processed together, only the last ping is answered.
                pinged = payload
            elif opcode == CLOSE:
                self._end_input(answer_to_close(payload))
                break
            elif opcode == BINARY:
                self._send_error(NO_ID, BadRequest("commands must be text messages, not binary", code="InvalidCommand"))
        if pinged is not None:
            self._send(frame(PONG, bytes(pinged)))
        if self._reader.failure is not None and not self._is_input_ended:
            self._services.port.stream_metrics.closed_violating += 1
            self._end_input(self._reader.failure)
        elif self._reader.held_bytes > UNCOUNTED_BYTES:
            self._check_message(asyncio.get_running_loop().time())
        self._close_if_done()
        self._update_reading()

    def _check_message(self, now: float) -> None:
        """End the input if the incomplete message arrives too slowly or exceeds the free memory of the port."""
        failure = self._message_limits.check(now, self._reader, self._may_read())
        if failure is not None and not self._is_input_ended:
            self._reader.abort(failure)
            self._message_limits.release()
            self._end_input(failure)

    def _resume_input(self) -> None:
        """Process more frames that were already received, unless the session has stopped reading meanwhile."""
        self._is_resume_scheduled = False
        if self._is_lost or self._is_input_ended or not self._may_read():
            return
        try:
            self._take(b"")
        except Exception:
            log.exception("a WebSocket failed; its connection is closed")
            self._outlet.abort()

    def _end_input(self, ending: Failure) -> None:
        self._is_input_ended = True
        if self._pending_close is None:
            self._pending_close = ending

    def _close_if_done(self) -> None:
        if self._pending_close is None or self._is_lost:
            return
        if not self._is_closing:
            if self._is_busy or self._waiting or self._unanswered:
                return
            self._close(*self._pending_close)
        if self._is_input_ended:
            self._outlet.finish()

    def _run_command(self, message: bytearray) -> bool:
        """Run a command or start a task that runs it. If the command must wait for the answers to earlier commands, put
        it back into the queue and return False."""
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
            self._start(command.request_id, self._subscribe(command.request_id, command.payload))
        elif type(command) is History:
            self._start(command.request_id, self._history(command.request_id, command.payload))
        else:
            self._unsubscribe(command.request_id, command.payload)  # type: ignore[arg-type]
        self._services.port.stream_metrics.commands += 1
        return True

    def _publish(self, command: Publish) -> None:
        services, payload, request_id = self._services, command.payload, command.request_id
        try:
            name = self._access.full_name(payload.room)
            self._access.authorize_room(Operation.WRITE, name)
            event = new_event(payload)
            room = services.rooms.get(name)
            storing_count = admit_events(self._access, 1)
        except RoomNotFound:
            self._start(request_id, self._create_and_publish(request_id, payload))
            return
        except (StreamError, KafkaError, Refusal) as error:
            self._send_error(request_id, error)
            return
        if storing_count is not None:
            self._start(request_id, self._publish_counted(request_id, room, event, storing_count))
            return
        self._begin_publish(request_id, room, event)

    async def _publish_counted(
        self, request_id: Raw, room: OpenRoom, event: NewEvent, storing_count: "asyncio.Future[None]"
    ) -> None:
        """Publish an event when the count of the key's events is stored."""
        try:
            await asyncio.shield(storing_count)
        except BaseException:
            self._uncount()
            raise
        self._begin_publish(request_id, room, event)

    def _begin_publish(self, request_id: Raw, room: OpenRoom, event: NewEvent) -> None:
        self._unanswered += 1
        done = partial(self._published, request_id, room.log)
        self._services.publisher.publish(room.log, source_of(room.name), (event,), done)

    def _uncount(self) -> None:
        if self._access.limits is not None:
            self._access.limits.give_back(1)

    def _published(self, request_id: Raw, published: StreamLog, outcome: Outcome) -> None:
        self._unanswered -= 1
        if type(outcome) is not Published:
            self._uncount()
        if self._is_lost:
            return
        if type(outcome) is Published:
            notified = self._services.subscriptions.count_of(published)
            self._send_result(request_id, publish_result(outcome.event_ids[0], outcome.offset, notified))
        else:
            assert isinstance(outcome, Exception)
            self._send_error(request_id, outcome)
        if not self._unanswered and (self._waiting or self._pending_close is not None):
            self._run_waiting_commands()

    # --- commands that wait

    def _start(self, request_id: Raw, work: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._task = asyncio.ensure_future(self._run_task(request_id, work))

    async def _run_task(self, request_id: Raw, work: Coroutine[Any, Any, None]) -> None:
        set_actor(self._actor)
        try:
            await work
        except Exception as error:
            if not isinstance(error, StreamError | KafkaError | Refusal | ConnectionError):
                log.exception("a command failed")
            if self._is_message_open:
                # Only an aborted connection shows the client that the message is incomplete.
                self._outlet.abort()
            else:
                self._send_error(request_id, error)
        self._is_busy, self._task = False, None
        self._run_waiting_commands()

    def _run_waiting_commands(self) -> None:
        """Run the waiting commands until one of them must wait or the outlet is not writable."""
        while self._waiting and not self._is_busy and not self._is_lost and self._outlet.is_writable:
            if not self._run_command(self._waiting.popleft()):
                break
        self._close_if_done()
        self._update_reading()

    async def _create_and_publish(self, request_id: Raw, payload: PublishPayload) -> None:
        services = self._services
        room = await room_to_use(services, self._access, self._access.full_name(payload.room))
        event = new_event(payload)
        storing_count = admit_events(self._access, 1)
        # As for an existing room, `_published` sends the answer when the event is durable.
        if storing_count is not None:
            await self._publish_counted(request_id, room, event, storing_count)
        else:
            self._begin_publish(request_id, room, event)

    async def _subscribe(self, request_id: Raw, payload: SubscribePayload) -> None:
        services, name = self._services, payload.room
        if name in self._subscriptions:
            raise SubscriptionFailed(f"this connection is already subscribed to room {name!r}")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise SubscriptionFailed(f"a connection may have at most {SUBSCRIPTIONS_MAX} subscriptions")
        full_name = self._access.full_name(name)
        self._access.authorize_room(Operation.READ, full_name)
        start, options = payload.start(), payload.options()
        room = await room_to_use(services, self._access, full_name)
        slot = SubscriptionSlot(self._access)
        await slot.take()
        try:
            subscription = await services.subscriptions.subscribe(name, room.log, start, self, options)
        except BaseException:
            slot.release()
            raise
        if self._is_lost or self._is_closing:
            subscription.close()
            slot.release()
            return
        self._subscriptions[name] = subscription
        self._slots[subscription] = slot
        self._send_result(request_id, _encode(facts_json(name, subscription.facts)))
        subscription.begin()

    def _unsubscribe(self, request_id: Raw, payload: UnsubscribePayload) -> None:
        subscription = self._subscriptions.pop(payload.room, None)
        if subscription is not None:
            subscription.close()
            self._release_slot(subscription)
            self._send_result(request_id, b'{"success":true}')
            return
        self._start(request_id, self._unsubscribe_other(request_id, payload))

    async def _unsubscribe_other(self, request_id: Raw, payload: UnsubscribePayload) -> None:
        """Answer an unsubscribe command for a room without a subscription. The room must exist."""
        name = self._access.full_name(payload.room)
        self._access.authorize_room(Operation.DESCRIBE, name)
        await self._services.rooms.find(name)
        self._send_result(request_id, b'{"success":false}')

    async def _history(self, request_id: Raw, payload: HistoryPayload) -> None:
        parts = await history_parts(self._services, self._access, payload)
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
        if self._is_message_open:
            self._end_message(data)
        else:
            self._send(text_frame(data))

    # --- output

    async def _send_frame(self, data: bytes) -> None:
        """Send a frame of a message, but not its final frame. Returns when the outlet is writable; raises
        ConnectionResetError if the connection is closed."""
        if not self._is_closing and not self._is_lost:
            opcode = CONTINUATION if self._is_message_open else TEXT
            self._flush()
            self._is_message_open = True
            self._outlet.write(frame(opcode, data, is_final=False))
            if not self._outlet.is_writable:
                self._until_writable = asyncio.get_running_loop().create_future()
                await self._until_writable
        if self._is_closing or self._is_lost:
            raise ConnectionResetError("the client has disconnected")

    def _end_message(self, data: bytes) -> None:
        self._outlet.write(frame(CONTINUATION, data))
        self._is_message_open = False
        self._flush()
        self._resume_subscriptions()

    def _resume_message(self) -> None:
        waiter, self._until_writable = self._until_writable, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _send_result(self, request_id: Raw, result: bytes) -> None:
        if request_id is NO_ID:
            self._send(text_frame(b'{"result":%b}' % result))
        else:
            self._send(text_frame(b'{"request_id":%b,"result":%b}' % (bytes(request_id), result)))

    def _send_error(self, request_id: Raw, error: Exception) -> None:
        body = {"error": self._access.shown_error(error)}
        self._send(text_frame(_encode(body if request_id is NO_ID else {"request_id": request_id, **body})))

    def _send(self, frame_bytes: bytes) -> None:
        if self._is_closing:
            return
        if not self._ready:
            self._call_soon(self._flush)
        self._ready.append(frame_bytes)

    def _flush(self) -> None:
        ready = self._ready
        if ready and not self._is_message_open:
            self._ready = []
            self._outlet.write(ready[0] if len(ready) == 1 else b"".join(ready))
            self._update_reading()

    def is_writable(self) -> bool:
        return self._is_open and self._outlet.is_writable and not self._is_message_open

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        if self._ready:
            self._flush()
        self._outlet.write(batch.encoded(socket_events))

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        if not self._is_open or self._is_lost or self._is_closing:
            return
        self._ready.append(socket_control(subscription.name, message))
        self._flush()
        if type(message) is Closed:
            if self._subscriptions.get(subscription.name) is subscription:
                del self._subscriptions[subscription.name]
                self._release_slot(subscription)
            if self._is_single:
                self._close(close_code_of(message), f"{message.code} offset={message.offset}")

    # --- flow control and timers

    def writable(self) -> None:
        self._resume_message()
        self._resume_subscriptions()
        self._run_waiting_commands()

    def _resume_subscriptions(self) -> None:
        for subscription in tuple(self._subscriptions.values()):
            subscription.resume()

    def _may_read(self) -> bool:
        return (
            self._is_closing
            or self._is_input_ended
            or (self._outlet.is_writable and not self._waiting and self._unanswered < UNANSWERED_MAX)
        )

    def _update_reading(self) -> None:
        if not self._may_read():
            self._outlet.pause_reading()
        elif self._reader.has_more and not self._is_input_ended:
            self._outlet.pause_reading()
            if not self._is_resume_scheduled:
                self._is_resume_scheduled = True
                # The chunks of all connections share one queue, and one chunk runs per iteration of the event loop.
                # Otherwise many busy connections would make every iteration long.
                schedule_chunk(self._resume_input)
        else:
            self._outlet.resume_reading()

    def tick(self, now: float) -> None:
        if self._is_closing:
            self._keepalive.tick_closing(now, self._outlet)
        else:
            self._keepalive.tick_open(now, self._outlet, is_read_from=not self._waiting)
            self._check_message(now)
            self._close_if_done()

    def check_access(self) -> None:
        """Close the WebSocket if the login has ended. End the subscriptions that the client may no longer read."""
        for subscription in tuple(self._subscriptions.values()):
            try:
                self._access.authorize_room(Operation.READ, self._access.full_name(subscription.name))
            except Refusal as error:
                subscription.end(FORBIDDEN, error.message)
        loss = self._access.loss()
        if loss is not None and not self._is_closing:
            self._close(POLICY_VIOLATION, loss.message)

    def stop(self) -> None:
        """Discard the waiting commands. Send a close frame when the running commands are answered. The node has already
        closed the subscriptions."""
        self._waiting.clear()
        if self._pending_close is None:
            self._pending_close = Failure(GOING_AWAY, "the server is stopping")
        self._close_if_done()

    def _close(self, code: int, reason: str) -> None:
        """Send the close frame. The connection stays open until the client answers with a close frame, or until `tick`
        ends the wait."""
        self._flush()
        self._ready.clear()
        self._is_closing = True
        self._drop_state()
        self._outlet.write(close_frame(code, reason))
        self._update_reading()

    def lost(self) -> None:
        self._is_lost = True
        self._message_limits.release()
        self._drop_state()

    def _drop_state(self) -> None:
        self._resume_message()
        self._waiting.clear()
        for subscription in self._subscriptions.values():
            subscription.close()
            self._release_slot(subscription)
        self._subscriptions.clear()

    def _release_slot(self, subscription: Subscription) -> None:
        # The slot of a subscription that was created before the handshake is released by its request.
        slot = self._slots.pop(subscription, None)
        if slot is not None:
            slot.release()

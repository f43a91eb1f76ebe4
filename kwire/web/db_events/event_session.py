"""The WebSocket of one subscription of this API. It sends events; messages of the client are read and ignored.

The timers, sizes and limits below are those of the API and are not settings. The session has no buffer of its own: a
client that does not read falls behind in the log, and is disconnected when it lags by SEND_BUFFER_EVENTS events beyond
what the connection has buffered, or after WRITE_WAIT_SECONDS.
"""

import asyncio
import logging
from collections.abc import Sequence

from msgspec.json import Encoder

from kwire.access.principal import Principal
from kwire.concurrency.chunking import schedule_chunk
from kwire.streams.events.event import Event
from kwire.streams.subscriptions import OnLag, SubscribeOptions, Subscription
from kwire.streams.subscriptions.control_messages import STOPPING, Closed, ControlMessage, Gap
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.web.db_events.event_sessions import EventSessions, TopicSessions
from kwire.web.requests.access import FORBIDDEN, RequestAccess
from kwire.web.streaming.close_codes import close_code_of
from kwire.web.streaming.streaming import Outlet
from kwire.web.streaming.websocket_frames import (
    CLOSE,
    GOING_AWAY,
    NO_CODE,
    NORMAL,
    PING,
    POLICY_VIOLATION,
    PONG,
    FrameReader,
    answer_to_close,
    close_frame,
    frame,
    text_frame,
)
from kwire.web.streaming.websocket_keepalive import CLOSE_SECONDS, is_due

log = logging.getLogger("kwire.web")

# A connection that accepts no data for this long is closed.
WRITE_WAIT_SECONDS = 10
# A client that sends no pong for this long is disconnected.
PONG_WAIT_SECONDS = 60
PING_PERIOD_SECONDS = PONG_WAIT_SECONDS * 9 // 10
# The maximum size of a message that the client may send.
MESSAGE_BYTES_MAX = 512
SEND_BUFFER_EVENTS = 256

OPTIONS = SubscribeOptions(
    on_lag=OnLag.TERMINATE, queue_events_max=SEND_BUFFER_EVENTS, unwritable_ms_max=WRITE_WAIT_SECONDS * 1000
)
# The codes with which clients end a session that they no longer need.
EXPECTED_CODES = frozenset((NORMAL, GOING_AWAY, NO_CODE))

_encode = Encoder().encode


def socket_events(topic: str, events: Sequence[Event]) -> bytes:
    """Return one text frame for each event. An `Encoding` of event batches: called once for all sessions."""
    front = b'{"topic":' + _encode(topic) + b',"data":'
    return b"".join([text_frame(b"%b%b}" % (front, event.data)) for event in events])


class EventSession:
    """The session of one connection, and the sink of its subscription."""

    __slots__ = ("_access", "_close_by", "_end", "_is_closing", "_is_lost", "_is_resume_scheduled", "_outlet",
                 "_pinged_at", "_pong_by", "_reader", "_sessions", "_subscription", "_topic_sessions",
                 "key_id", "topic")  # fmt: skip

    _outlet: Outlet
    _subscription: Subscription
    _topic_sessions: TopicSessions

    def __init__(self, sessions: EventSessions, access: RequestAccess, key_id: str, topic: str) -> None:
        self._sessions = sessions
        self._access = access
        self.key_id = key_id
        self.topic = topic
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._is_closing = self._is_lost = self._is_resume_scheduled = False
        self._pong_by = self._pinged_at = self._close_by = 0.0
        # The reason of the end, and whether it was an expected one.
        self._end: tuple[str, bool] | None = None

    def open_subscribed(
        self, outlet: Outlet, subscription: Subscription, topic_sessions: TopicSessions, now: float
    ) -> "EventSession":
        """Begin to deliver the events of a subscription that was created before the WebSocket handshake."""
        self._outlet = outlet
        self._subscription = subscription
        self._topic_sessions = topic_sessions
        self._pinged_at, self._pong_by = now, now + PONG_WAIT_SECONDS
        if subscription.is_closed:
            self._close(GOING_AWAY, "the subscription has ended", is_expected=True)
        else:
            subscription.begin()
        return self

    @property
    def protocol(self) -> str:
        return "websocket"

    @property
    def principal(self) -> Principal:
        return self._access.principal

    # --- the reader

    def received(self, data: bytes) -> None:
        pinged: bytearray | None = None
        for opcode, payload in self._reader.feed(data):
            if opcode == PONG:
                self._pong_by = asyncio.get_running_loop().time() + PONG_WAIT_SECONDS
            elif opcode == PING:
                # If several pings are processed together, only the last ping is answered.
                pinged = payload
            elif opcode == CLOSE:
                self._closed_by_client(payload)
                return
        if pinged is not None and not self._is_closing:
            self._outlet.write(frame(PONG, bytes(pinged)))
        if self._reader.failure is not None:
            code, reason = self._reader.failure
            self._close(code, reason, is_expected=False)
            self._outlet.finish()
        elif self._reader.has_more:
            # Frames are processed in chunks, so that one client does not delay the others.
            self._outlet.pause_reading()
            if not self._is_resume_scheduled:
                self._is_resume_scheduled = True
                schedule_chunk(self._resume_input)
        else:
            self._outlet.resume_reading()

    def _resume_input(self) -> None:
        self._is_resume_scheduled = False
        if self._is_lost:
            return
        try:
            self.received(b"")
        except Exception:
            log.exception("a WebSocket failed; its connection is closed")
            self._outlet.abort()

    def _closed_by_client(self, payload: bytearray) -> None:
        code, reason = answer_to_close(payload)
        shown = "the client closed it" if code == NO_CODE else f"the client closed it with code {code}"
        self._close(code, reason, is_expected=code in EXPECTED_CODES, shown=shown)
        self._outlet.finish()

    # --- the writer

    def is_writable(self) -> bool:
        return self._outlet.is_writable and not self._is_closing

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        self._topic_sessions.note_received(batch)
        self._outlet.write(batch.encoded(socket_events))

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        """This API has no control messages. The end of the subscription is in the close frame."""
        if isinstance(message, Closed):
            self._close(
                close_code_of(message),
                f"{message.code} offset={message.offset}",
                is_expected=message.code in (STOPPING, FORBIDDEN),
                shown=f"{message.code}: {message.reason}",
            )
        elif isinstance(message, Gap):
            log.warning(
                "topic %s: events %d to %d are not delivered: %s",
                self.topic, message.from_offset, message.to_offset, message.reason,
            )  # fmt: skip

    def writable(self) -> None:
        self._subscription.resume()

    def tick(self, now: float) -> None:
        if self._is_closing:
            if not self._close_by:
                self._close_by = now + (CLOSE_SECONDS if self._outlet.is_writable else WRITE_WAIT_SECONDS)
            elif now > self._close_by:
                self._outlet.abort()
            return
        if now >= self._pong_by:
            self._note_end(f"no pong for {PONG_WAIT_SECONDS} seconds", is_expected=False)
            self._outlet.abort()
        elif is_due(now, self._pinged_at, PING_PERIOD_SECONDS * 1000) and self._outlet.is_writable:
            self._pinged_at = now
            self._outlet.write(frame(PING, b""))

    # --- the end

    def check_access(self) -> None:
        loss = self._access.loss()
        if loss is not None:
            self._close(POLICY_VIOLATION, loss.message, is_expected=True)

    def stop(self) -> None:
        self._close(GOING_AWAY, "the server is stopping", is_expected=True)

    def lost(self) -> None:
        self._is_lost = True
        self._note_end("the connection was lost without a close frame", is_expected=False)
        self._subscription.close()
        reason, is_expected = self._end or ("", True)
        now = asyncio.get_running_loop().time()
        self._sessions.log_end(self.key_id, reason, is_expected=is_expected, now=now)

    def _note_end(self, reason: str, *, is_expected: bool) -> None:
        if self._end is None:
            self._end = (reason, is_expected)

    def _close(self, code: int, reason: str, *, is_expected: bool, shown: str = "") -> None:
        """Send the close frame. The connection stays open until the client answers, or until `tick` ends the wait."""
        self._note_end(shown or reason, is_expected=is_expected)
        if not self._is_closing:
            self._is_closing = True
            self._subscription.close()
            self._outlet.write(close_frame(code, reason))

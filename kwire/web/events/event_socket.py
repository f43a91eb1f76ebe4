"""The WebSocket of one subscription to the event store. The client may send only pings, pongs and a close frame."""

import asyncio
import logging

from kwire.streams.subscriptions import Subscription
from kwire.streams.subscriptions.control_messages import Closed, ControlMessage
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.web.events.encodings import SocketFormat, public_code
from kwire.web.requests.access import FORBIDDEN, RequestAccess
from kwire.web.services import PortServices
from kwire.web.streaming.close_codes import close_code_of
from kwire.web.streaming.streaming import Outlet
from kwire.web.streaming.subscription_streams import SelectEvents
from kwire.web.streaming.websocket_frames import (
    BINARY,
    CLOSE,
    GOING_AWAY,
    PING,
    PONG,
    TEXT,
    Failure,
    FrameReader,
    answer_to_close,
    close_frame,
    frame,
)
from kwire.web.streaming.websocket_keepalive import WebSocketKeepalive

log = logging.getLogger("kwire.web")

# The message limit of the frame reader. It is small, because this WebSocket accepts no messages.
MESSAGE_BYTES_MAX = 4096
# The close code for a message of an unsupported type.
UNSUPPORTED = 1003


class EventSocket:
    """One WebSocket: the session of its connection, and the sink of its subscription."""

    __slots__ = ("_access", "_call_soon", "_format", "_is_closing", "_is_input_ended", "_is_lost", "_is_open",
                 "_is_resume_scheduled", "_keepalive", "_outlet", "_port", "_reader", "_select",
                 "_subscription")  # fmt: skip

    _outlet: Outlet
    _subscription: Subscription

    def __init__(
        self,
        port: PortServices,
        socket_format: SocketFormat,
        access: RequestAccess,
        select: SelectEvents | None = None,
    ) -> None:
        self._port = port
        self._access = access
        self._select = select
        self._format = socket_format
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._call_soon = asyncio.get_running_loop().call_soon
        self._keepalive = WebSocketKeepalive(port)
        self._is_open = self._is_closing = self._is_lost = False
        # Set when the client has sent its close frame or violated the protocol. Later bytes are ignored.
        self._is_input_ended = False
        self._is_resume_scheduled = False

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> "EventSocket":
        self._outlet = outlet
        self._subscription = subscription
        self._is_open = True
        outlet.write(self._format.subscribed(subscription.name, subscription.facts))
        if subscription.is_closed:
            self._close(GOING_AWAY, "the subscription has ended")
        else:
            subscription.begin()
        return self

    # --- output

    def is_writable(self) -> bool:
        return self._is_open and self._outlet.is_writable

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        if self._select is not None:
            batch = self._select(batch)
            if not batch.events:
                return
        self._outlet.write(batch.encoded(self._format.events))

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        if not self._is_open or self._is_lost or self._is_closing:
            return
        self._outlet.write(self._format.control(subscription.name, message))
        if type(message) is Closed:
            self._close(close_code_of(message), f"{public_code(message.code)} at={message.offset}")

    # --- input

    def received(self, data: bytes) -> None:
        self._keepalive.has_received = True
        if not self._is_input_ended:
            self._take(data)

    def _take(self, data: bytes) -> None:
        pinged: bytearray | None = None
        for opcode, payload in self._reader.feed(data):
            if opcode == PING:
                # If several pings are processed together, only the last ping is answered.
                pinged = payload
            elif opcode == CLOSE:
                self._end_input(answer_to_close(payload))
                return
            elif opcode in (TEXT, BINARY) and not self._is_closing:
                self._close(UNSUPPORTED, "this WebSocket accepts no messages")
        if pinged is not None and not self._is_closing:
            self._outlet.write(frame(PONG, bytes(pinged)))
        if self._reader.failure is None:
            self._update_reading()
            return
        if not self._is_closing:
            self._port.stream_metrics.closed_violating += 1
        self._end_input(self._reader.failure)

    def _end_input(self, ending: Failure) -> None:
        self._is_input_ended = True
        if not self._is_closing:
            self._close(*ending)
        self._outlet.finish()

    def _update_reading(self) -> None:
        """Pause or resume reading. While the client does not read, the server does not read from the client either.
        Otherwise the answers to the client's pings would fill an unbounded buffer."""
        if not (self._is_closing or self._outlet.is_writable):
            self._outlet.pause_reading()
        elif self._reader.has_more:
            # Some frames of the last read are not processed yet. Yield to the event loop before they are processed.
            self._outlet.pause_reading()
            if not self._is_resume_scheduled:
                self._is_resume_scheduled = True
                self._call_soon(self._resume_input)
        else:
            self._outlet.resume_reading()

    def _resume_input(self) -> None:
        self._is_resume_scheduled = False
        if self._is_lost or self._is_input_ended or not (self._is_closing or self._outlet.is_writable):
            return
        try:
            self._take(b"")
        except Exception:
            log.exception("a WebSocket failed; its connection is closed")
            self._outlet.abort()

    # --- flow control and timers

    def writable(self) -> None:
        self._subscription.resume()
        if not self._is_input_ended:
            self._update_reading()

    def tick(self, now: float) -> None:
        if self._is_closing:
            self._keepalive.tick_closing(now, self._outlet)
        else:
            self._keepalive.tick_open(now, self._outlet, is_read_from=True)

    def check_access(self) -> None:
        loss = self._access.loss()
        if loss is not None:
            self._subscription.end(FORBIDDEN, loss.message)

    def stop(self) -> None:
        if not self._is_closing:
            self._close(GOING_AWAY, "the server is stopping")

    def _close(self, code: int, reason: str) -> None:
        """Send the close frame. The connection stays open until the client answers with a close frame, or until `tick`
        ends the wait."""
        self._is_closing = True
        self._subscription.close()
        self._outlet.write(close_frame(code, reason))
        if not self._is_input_ended:
            self._update_reading()

    def lost(self) -> None:
        self._is_lost = True
        self._subscription.close()

"""A WebSocket that only listens: one subscription out, and of the client nothing but pings, pongs and its close."""

import asyncio
import logging

from kwire.broker.subscriptions import Subscription
from kwire.broker.subscriptions.marks import STOPPING, Closed, Mark
from kwire.broker.subscriptions.portions import Portion
from kwire.web.events.encodings import SocketForm, told_code
from kwire.web.services import WebServices
from kwire.web.socket_frames import (
    BINARY,
    CLOSE,
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
)
from kwire.web.socket_upkeep import SocketUpkeep
from kwire.web.streaming import Outlet

log = logging.getLogger("kwire.web")

# Nothing is expected; a close with its reason is the largest.
MESSAGE_BYTES_MAX = 4096
# The close code for a message of a kind that is not taken.
UNSUPPORTED = 1003


class ListeningSocket:
    """A session for the connection's bytes, and the sink of its subscription."""

    __slots__ = ("_call_soon", "_form", "_is_closing", "_is_deaf", "_is_lost", "_is_open", "_is_reading_on", "_outlet",
                 "_reader", "_services", "_subscription", "_upkeep")  # fmt: skip

    _outlet: Outlet
    _subscription: Subscription

    def __init__(self, services: WebServices, form: SocketForm) -> None:
        self._services = services
        self._form = form
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._call_soon = asyncio.get_running_loop().call_soon
        self._upkeep = SocketUpkeep(services)
        self._is_open = self._is_closing = self._is_lost = False
        # The client has said its last word.
        self._is_deaf = False
        self._is_reading_on = False

    def open_subscribed(self, outlet: Outlet, subscription: Subscription) -> "ListeningSocket":
        self._outlet = outlet
        self._subscription = subscription
        self._is_open = True
        outlet.write(self._form.subscribed(subscription.name, subscription.facts))
        if subscription.is_closed:
            self._close(GOING_AWAY, "the subscription has ended")
        else:
            subscription.begin()
        return self

    # --- what the client gets

    def is_writable(self) -> bool:
        return self._is_open and self._outlet.is_writable

    def send_events(self, subscription: Subscription, portion: Portion) -> None:
        self._outlet.write(portion.encoded(self._form.events))

    def send_mark(self, subscription: Subscription, mark: Mark) -> None:
        if not self._is_open or self._is_lost or self._is_closing:
            return
        self._outlet.write(self._form.mark(subscription.name, mark))
        if type(mark) is Closed:
            code = GOING_AWAY if mark.code == STOPPING else TRY_AGAIN_LATER
            self._close(code, f"{told_code(mark.code)} at={mark.offset}")

    # --- what the client sends

    def received(self, data: bytes) -> None:
        self._upkeep.is_heard = True
        if not self._is_deaf:
            self._take(data)

    def _take(self, data: bytes) -> None:
        pinged: bytearray | None = None
        for opcode, payload in self._reader.feed(data):
            if opcode == PING:
                # Of several that came together the last one is answered.
                pinged = payload
            elif opcode == CLOSE:
                self._hear_no_more(answer_to_close(payload))
                return
            elif opcode in (TEXT, BINARY) and not self._is_closing:
                self._close(UNSUPPORTED, "nothing can be sent here: this connection only listens")
        if pinged is not None and not self._is_closing:
            self._outlet.write(frame(PONG, bytes(pinged)))
        if self._reader.failure is None:
            self._turn_reading()
            return
        if not self._is_closing:
            self._services.stream_metrics.closed_violating += 1
        self._hear_no_more(self._reader.failure)

    def _hear_no_more(self, goodbye: Failure) -> None:
        self._is_deaf = True
        if not self._is_closing:
            self._close(*goodbye)
        self._outlet.finish()

    def _turn_reading(self) -> None:
        """Who takes nothing is not read from: its pings would be answered into a buffer without end."""
        if not (self._is_closing or self._outlet.is_writable):
            self._outlet.pause_reading()
        elif self._reader.is_behind:
            # There is more in what came: others have their turn before it.
            self._outlet.pause_reading()
            if not self._is_reading_on:
                self._is_reading_on = True
                self._call_soon(self._read_on)
        else:
            self._outlet.resume_reading()

    def _read_on(self) -> None:
        self._is_reading_on = False
        if self._is_lost or self._is_deaf or not (self._is_closing or self._outlet.is_writable):
            return
        try:
            self._take(b"")
        except Exception:
            log.exception("a socket failed; its connection is closed")
            self._outlet.abort()

    # --- how fast, how long

    def writable(self) -> None:
        self._subscription.resume()
        if not self._is_deaf:
            self._turn_reading()

    def tick(self, now: float) -> None:
        if self._is_closing:
            self._upkeep.tick_closing(now, self._outlet)
        else:
            self._upkeep.tick_open(now, self._outlet, is_read_from=True)

    def stop(self) -> None:
        if not self._is_closing:
            self._close(GOING_AWAY, "the server is stopping")

    def _close(self, code: int, reason: str) -> None:
        """Say the last word, and wait for the client's."""
        self._is_closing = True
        self._subscription.close()
        self._outlet.write(close_frame(code, reason))
        if not self._is_deaf:
            self._turn_reading()

    def lost(self) -> None:
        self._is_lost = True
        self._subscription.close()

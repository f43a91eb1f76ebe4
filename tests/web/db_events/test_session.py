"""The timers of a session, in virtual time."""

import asyncio
from typing import Any

import pytest

from kwire.access.usage.subscription_slots import SLOT_SECONDS
from kwire.web.db_events import event_session
from kwire.web.db_events.event_session import OPTIONS, EventSession
from kwire.web.db_events.event_sessions import DbEventMetrics, EventSessions, TopicSessions
from kwire.web.requests.access import OPEN_ACCESS
from tests.support.node import in_loop
from tests.support.room_sockets import client_frame

PING, PONG, CLOSE = 9, 10, 8
PING_FRAME = b"\x89\x00"


class FakeOutlet:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.is_writable = True
        self.written: list[bytes] = []
        self.ends: list[str] = []
        self.unsent_bytes = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.ends.append("close")

    def finish(self) -> None:
        self.ends.append("finish")

    def abort(self) -> None:
        self.ends.append("abort")

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FakeSubscription:
    is_closed = False

    def begin(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def opened(now: float) -> tuple[EventSession, FakeOutlet, Any]:
    outlet, subscription = FakeOutlet(), FakeSubscription()
    session = EventSession(EventSessions(1), OPEN_ACCESS, "kwk_a", "t")
    made: Any = subscription
    session.open_subscribed(outlet, made, TopicSessions(DbEventMetrics(), 0), now)
    return session, outlet, subscription


@pytest.mark.proves("S1-50", "S1-51", "S1-52", "S1-53", "S1-54")
def test_the_constants_of_the_api() -> None:
    assert event_session.WRITE_WAIT_SECONDS == 10
    assert event_session.PONG_WAIT_SECONDS == 60
    assert event_session.PING_PERIOD_SECONDS == 54
    assert event_session.MESSAGE_BYTES_MAX == 512
    assert event_session.SEND_BUFFER_EVENTS == 256
    assert (OPTIONS.queue_events_max, OPTIONS.unwritable_ms_max) == (256, 10_000)
    assert SLOT_SECONDS == 30


@in_loop
@pytest.mark.proves("S1-31", "S1-32", "S1-33", "S1-35", "S1-51", "S1-52", "C-13")
async def test_a_client_that_answers_no_ping_is_disconnected_60_seconds_after_its_last_pong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, outlet, subscription = opened(1000.0)
    pings: list[int] = []
    for second in range(1, 56):
        session.tick(1000.0 + second)
        if len(outlet.written) > len(pings):
            pings.append(second)
    assert outlet.written == [PING_FRAME]
    assert pings[0] in (53, 54)
    # A pong moves the deadline; other messages do not.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1055.0)
    session.received(client_frame(PONG, b""))
    for second in range(56, 115):
        session.tick(1000.0 + second)
    assert not outlet.ends
    session.received(client_frame(1, b"not a pong"))
    session.tick(1115.0)
    assert outlet.ends == ["abort"]
    session.lost()
    assert subscription.is_closed
    assert session._end == ("no pong for 60 seconds", False)


@in_loop
@pytest.mark.proves("S1-32", "S1-33")
async def test_a_close_frame_is_answered_and_a_ping_gets_a_pong() -> None:
    session, outlet, subscription = opened(0.0)
    session.received(client_frame(PING, b"abc"))
    assert outlet.written == [b"\x8a\x03abc"]
    session.received(client_frame(CLOSE, (1000).to_bytes(2, "big")))
    assert outlet.written[1:] == [b"\x88\x02\x03\xe8"]
    assert outlet.ends == ["finish"]
    assert subscription.is_closed
    assert session._end == ("the client closed it with code 1000", True)


@in_loop
@pytest.mark.proves("S1-33", "S1-50")
async def test_a_client_that_takes_no_data_is_aborted_10_seconds_after_the_close_frame() -> None:
    session, outlet, _ = opened(0.0)
    outlet.is_writable = False
    session.stop()
    for second in range(1, 12):
        session.tick(float(second))
    assert not outlet.ends
    session.tick(12.0)
    assert outlet.ends == ["abort"]


@in_loop
async def test_many_frames_in_one_read_are_processed_in_chunks() -> None:
    session, _, _ = opened(0.0)
    session.received(client_frame(1, b"x") * 1000)
    assert session._reader.has_more

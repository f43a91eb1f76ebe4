"""What time brings on a WebSocket, whatever it is for: those of rooms and those of the event store alike."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.config import load
from kwire.metrics import StreamMetrics
from kwire.streams.subscriptions import SubscriptionFacts
from kwire.web.events.encodings import ALL_FORMATS
from kwire.web.events.event_socket import EventSocket
from kwire.web.requests.access import OPEN_ACCESS
from kwire.web.requests.memory import HttpMemory
from kwire.web.rooms.socket_session import SocketSession
from kwire.web.rooms.subscribe import NDJSON_FORMAT
from kwire.web.streaming.streaming import TICK_SECONDS, Session
from kwire.web.streaming.subscription_streams import SubscriptionStream
from tests.support.node import in_uvloop
from tests.support.wire import Wire

OPENED_AT = 100.0
# A node that is busy looks a little late.
STEP = TICK_SECONDS * 1.03
FACTS = SubscriptionFacts("sub_1", "epoch", 0, -1, 0, True)


def silent_subscription() -> Any:
    return SimpleNamespace(name="a", facts=FACTS, is_closed=False, begin=lambda: None, close=lambda: None)


def room_session(port: Any, wire: Wire) -> Session:
    services: Any = SimpleNamespace(port=port)
    return SocketSession(services, OPEN_ACCESS).open(wire)


def event_session(port: Any, wire: Wire) -> Session:
    return EventSocket(port, ALL_FORMATS.socket, OPEN_ACCESS).open_subscribed(wire, silent_subscription())


@pytest.mark.proves("S0-31")
@pytest.mark.parametrize("opened", [room_session, event_session])
@in_uvloop
async def test_a_silent_client_is_asked_every_ten_seconds_and_removed_after_thirty(
    tmp_path: Path, opened: Callable[[Any, Wire], Session]
) -> None:
    port = SimpleNamespace(
        config=load(data_dir=str(tmp_path)), stream_metrics=StreamMetrics(), memory=HttpMemory(1_000_000, 0)
    )
    wire = Wire()
    session = opened(port, wire)
    wire.written.clear()
    pinged_at: list[float] = [0.0]
    now = OPENED_AT
    while not wire.is_aborted:
        session.tick(now)
        if wire.written:
            assert wire.written.pop() == b"\x89\x00"
            pinged_at.append(now - OPENED_AT)
        now += STEP
    assert 30.0 <= now - STEP - OPENED_AT <= 32.0
    assert len(pinged_at) >= 3
    assert max(after - before for before, after in pairwise(pinged_at)) <= 10.0
    assert port.stream_metrics.closed_idle == 1


@in_uvloop
async def test_a_stream_over_http_has_a_heartbeat_every_ten_seconds() -> None:
    wire = Wire()
    sink = SubscriptionStream(NDJSON_FORMAT, heartbeat_ms=10_000, access=OPEN_ACCESS)
    stream = sink.open(silent_subscription(), FACTS, None, wire)
    wire.written.clear()
    beats: list[float] = [0.0]
    now = OPENED_AT
    while len(beats) < 5:
        stream.tick(now)
        if wire.written:
            assert wire.written.pop() == b"1\r\n\n\r\n"
            beats.append(now - OPENED_AT)
        now += STEP
    assert max(after - before for before, after in pairwise(beats)) <= 10.0

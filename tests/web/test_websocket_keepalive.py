"""What time brings on a WebSocket, whatever it is for: those of rooms and those of the event store alike."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.broker.subscriptions import SubscriptionFacts
from kwire.config import load
from kwire.metrics import StreamMetrics
from kwire.web.events.encodings import ALL_FORMS
from kwire.web.events.listening_socket import ListeningSocket
from kwire.web.memory import HttpMemory
from kwire.web.rooms.socket_session import SocketSession
from kwire.web.rooms.subscribe import NDJSON_FORM
from kwire.web.streaming import TICK_SECONDS, Session
from kwire.web.subscription_streams import SubscriptionStream
from tests.support.node import in_uvloop
from tests.support.wire import Wire

OPENED_AT = 100.0
# A node that is busy looks a little late.
STEP = TICK_SECONDS * 1.03
FACTS = SubscriptionFacts("sub_1", "epoch", 0, -1, 0, True)


def silent_subscription() -> Any:
    return SimpleNamespace(name="a", facts=FACTS, is_closed=False, begin=lambda: None, close=lambda: None)


def room_session(services: Any, wire: Wire) -> Session:
    return SocketSession(services).open(wire)


def listening_session(services: Any, wire: Wire) -> Session:
    return ListeningSocket(services, ALL_FORMS.socket).open_subscribed(wire, silent_subscription())


@pytest.mark.proves("S0-31")
@pytest.mark.parametrize("opened", [room_session, listening_session])
@in_uvloop
async def test_a_silent_client_is_asked_every_ten_seconds_and_removed_after_thirty(
    tmp_path: Path, opened: Callable[[Any, Wire], Session]
) -> None:
    services = SimpleNamespace(
        config=load(data_dir=str(tmp_path)), stream_metrics=StreamMetrics(), memory=HttpMemory(1_000_000, 0)
    )
    wire = Wire()
    session = opened(services, wire)
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
    assert services.stream_metrics.closed_idle == 1


@in_uvloop
async def test_a_stream_over_http_has_a_heartbeat_every_ten_seconds() -> None:
    wire = Wire()
    stream = SubscriptionStream(NDJSON_FORM, heartbeat_ms=10_000).open(silent_subscription(), FACTS, None, wire)
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

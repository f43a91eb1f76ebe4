"""An integer of 5,000 digits in a room, written by a Kafka producer: the Python client reads what comes after it."""

from pathlib import Path

import pytest

from kwire.client import Client, Event, InvalidEvent
from tests.support.clients import produce_values
from tests.support.server import KwireProcess

WAIT_S = 20.0
NUMBER = "7" * 5000


def test_the_python_client_gets_past_a_number_that_python_cannot_read(tmp_path: Path) -> None:
    process = KwireProcess(tmp_path)
    process.start()
    try:
        process.ready()
        with Client(process.http_url, timeout_s=WAIT_S) as client:
            assert client.stream.publish("long-numbers", "e", "first").offset == 0
            produce_values(process.bootstrap, "long-numbers", [NUMBER.encode(), b"1e400"])
            assert client.stream.publish("long-numbers", "e", "last").offset == 3
            subscription = client.stream.subscribe("long-numbers", from_offset=0, replay=True)
            events: list[Event] = []
            while len(events) < 4:
                item = subscription.next_item(WAIT_S)
                if isinstance(item, Event):
                    events.append(item)
            assert [event.data for event in events] == ["first", NUMBER, "1e400", "last"]
            history = client.stream.history("long-numbers")
            assert [event.data for event in history.events] == ["first", NUMBER, "1e400", "last"]
            for bad in (float("inf"), float("nan"), int("7" * 4300) * 10, "\ud800"):
                with pytest.raises(InvalidEvent):
                    client.stream.publish("long-numbers", "e", bad)
            assert client.stream.publish("long-numbers", "e", "\U0001f600").offset == 4
        assert process.stop() == 0
    finally:
        process.kill()

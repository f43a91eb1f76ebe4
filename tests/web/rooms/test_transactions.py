"""Rooms over HTTP while Kafka producers write to them in transactions."""

from pathlib import Path
from typing import Any

from kwire.broker.partition import Partition
from tests.support.http import Http, http_node
from tests.support.node import in_loop, in_uvloop
from tests.support.room_sockets import http_stream, room_socket
from tests.support.transactions import TransactionalProducer

EVENT = {"event_type": "message", "data": {"n": 1}}


async def room(http: Http, name: str = "r", count: int = 1) -> Partition:
    for _ in range(count):
        assert (await http.post(f"/rooms/{name}/events", EVENT)).status == 201
    topic = http.node._shared.services.topics.get(name)
    assert topic is not None
    return topic.partitions[0]


def offsets(events: list[dict[str, Any]]) -> list[int]:
    return [one["offset"] for one in events]


@in_loop
async def test_history_is_what_is_committed(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        partition = await room(http, count=2)
        producer = TransactionalProducer(partition, 7)
        producer.publish("a", "b")
        await room(http)
        told = (await http.get("/rooms/r/events")).json
        assert (offsets(told["events"]), told["newest_offset"], told["next_offset"]) == ([0, 1], 1, 2)
        assert (await http.get("/rooms/r/events/2")).status == 404
        assert (await http.get("/rooms/r")).json["newest_offset"] == 1
        assert (await http.get("/rooms/r")).json["event_count"] == 2
        producer.abort()
        told = (await http.get("/rooms/r/events")).json
        assert (offsets(told["events"]), told["newest_offset"], told["next_offset"]) == ([0, 1, 4], 5, 6)
        assert (await http.get("/rooms/r")).json["newest_offset"] == 5
        for gone in (2, 3, 5):
            assert (await http.get(f"/rooms/r/events/{gone}")).status == 404
        assert (await http.get("/rooms/r/events/4")).status == 200
        producer.publish("c")
        producer.commit()
        told = (await http.get("/rooms/r/events?from_offset=5")).json
        assert (offsets(told["events"]), told["newest_offset"], told["next_offset"]) == ([6], 7, 8)


@in_uvloop
async def test_subscribers_of_a_room_hear_of_a_transaction_at_its_end(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, room_socket(http.port) as socket:
        partition = await room(http)
        producer = TransactionalProducer(partition, 7)
        answer = await socket.result("stream.subscribe", room="r", from_offset=0)
        assert (answer["newest_offset"], answer["next_offset"]) == (0, 0)
        async with http_stream(http.port, "/rooms/r/subscribe?from_offset=1") as lines:
            assert (await lines.message())["control"] == "subscribed"
            assert (await lines.message())["control"] == "caught_up"
            assert (await socket.next())["offset"] == 0
            assert (await socket.next())["control"] == "caught_up"
            producer.publish("aborted")
            producer.abort()
            producer.publish("a")
            await room(http)
            producer.commit()
            for hear in (lines.message, socket.next):
                heard = [await hear() for _ in range(2)]
                assert [(one["offset"], one["type"]) for one in heard] == [(3, "a"), (4, "message")]
        history = await socket.result("stream.history", room="r")
        assert (offsets(history["events"]), history["newest_offset"]) == ([0, 3, 4], 5)

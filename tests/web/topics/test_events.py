"""Publishing to partitioned topics and reading them by partition, over REST."""

from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, KafkaError
from kwire.web.topics import events as topic_events
from storage.batch.record_batch import Record, build_batch, check_batch
from tests.support.engines import Engine
from tests.support.node import in_loop
from tests.support.transactions import TransactionalProducer
from tests.web.topics.topics_port import Port, engine_port, topics_port


def java_partition(key: str, count: int) -> int:
    """As Kafka's Java client places it, by an independent hand."""
    return int((murmur2(key.encode()) & 0x7FFFFFFF) % count)


def partition_of(port: Port, topic: str, index: int = 0) -> Partition:
    found = port.node.topics.get(topic)
    assert found is not None
    return found.partitions[index]


def append(partition: Partition, *records: Record) -> None:
    batch = memoryview(build_batch(records))
    partition.append(batch, check_batch(batch))


# --- publish


@in_loop
@pytest.mark.proves("S0-63", "S0-65", "S0-91", "S0-92")
async def test_a_key_always_lands_on_the_partition_of_the_java_client(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=7)
        for number in range(40):
            key = f"customer-{number}"
            first, second = await port.publish("t", 1, key), await port.publish("t", 2, key)
            assert first == {"partition_id": java_partition(key, 7), "offset": first["offset"], "topic": "t"}
            assert second == {**first, "offset": first["offset"] + 1}


@in_loop
@pytest.mark.proves("S0-64")
async def test_events_without_a_key_go_round(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=3)
        # Keyed ones take no turn.
        found = []
        for number in range(9):
            found.append((await port.publish("t", number))["partition_id"])
            await port.publish("t", number, "key")
        assert found == [0, 1, 2] * 3


@in_loop
@pytest.mark.proves("S0-86")
async def test_events_of_one_user_keep_their_order_and_tenants_their_place(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("activity", num_partitions=4)
        places: dict[str, set[int]] = {}
        for number in range(60):
            user = f"user-{number % 6}"
            told = await port.publish("activity", number, user)
            places.setdefault(user, set()).add(told["partition_id"])
        assert all(len(one) == 1 for one in places.values())
        seen: dict[str, list[int]] = {}
        for index in range(4):
            for event in (await port.consume("activity", index))["events"]:
                seen.setdefault(event["key"], []).append(event["data"])
        assert seen == {f"user-{user}": list(range(user, 60, 6)) for user in range(6)}


@in_loop
async def test_an_array_is_published_in_order_and_answered_one_by_one(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=3)
        events = [{"event_type": "e", "data": number, "key": f"k{number % 5}"} for number in range(1200)]
        told = await port.post("/topics/t/publish", events)
        assert (told.status, told.body["topic"], told.body["count"]) == (200, "t", 1200)
        by_place = {(one["partition_id"], one["offset"]): number for number, one in enumerate(told.body["events"])}
        assert len(by_place) == 1200
        read = []
        for index in range(3):
            consumed = await port.consume("t", index, limit=10_000)
            numbers = [event["data"] for event in consumed["events"]]
            assert numbers == sorted(numbers)
            assert [by_place[index, event["offset"]] for event in consumed["events"]] == numbers
            read += numbers
        assert sorted(read) == list(range(1200))


@in_loop
async def test_an_array_that_is_too_large_for_one_batch_becomes_several(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1, configs={"max.message.bytes": "20000"})
        told = await port.post("/topics/t/publish", [{"event_type": "e", "data": "x" * 900}] * 200)
        assert (told.status, told.body["count"]) == (200, 200)
        assert [one["offset"] for one in told.body["events"]] == list(range(200))


@in_loop
async def test_one_event_of_an_array_that_does_not_fit_fails_alone(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1, configs={"max.message.bytes": "20000"})
        small, large = {"event_type": "e", "data": 1}, {"event_type": "e", "data": "x" * 30_000}
        told = await port.post("/topics/t/publish", [small, large, small])
        assert (told.status, told.body["count"]) == (207, 2)
        first, second, third = told.body["events"]
        assert (first, third) == ({"partition_id": 0, "offset": 0}, {"partition_id": 0, "offset": 1})
        assert second["error"]["code"] == "EventTooLarge"
        assert "offset" not in second
        # Nothing of it stored is a plain refusal.
        told = await port.post("/topics/t/publish", [large])
        assert (told.status, told.body["error"]["code"]) == (413, "EventTooLarge")
        assert (await port.post("/topics/t/publish", large)).status == 413


@in_loop
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"data": 1}, "event_type"),
        ({"event_type": "e"}, "data"),
        ({"event_type": 5, "data": 1}, "event_type"),
        ({"event_type": "", "data": 1}, "event_type"),
        ({"event_type": "x" * 300, "data": 1}, "event_type"),
        ({"event_type": "ü" * 200, "data": 1}, "type"),
        ({"event_type": "e", "data": 1, "key": 5}, "key"),
        ({"event_type": "e", "data": 1, "metadata": {"a": 1}}, "metadata"),
        ({"event_type": "e", "data": 1, "metadata": {"ce_id": "x"}}, "ce_id"),
        ({"event_type": "e", "data": 1, "partition": 1}, "partition"),
        ([], "length"),
        ([{"event_type": "e", "data": 1}, {"event_type": "e"}], "[1]"),
        ([{"event_type": "e", "data": 1}, {"event_type": "ü" * 200, "data": 2}], "events[1]"),
        ([{"event_type": "e", "data": 1}, {"event_type": "e", "data": 2, "metadata": {"ce_id": "x"}}], "events[1]"),
        ("hello", "str"),
        (b'{"event_type": "e", "data": {"a": }}', "JSON"),
        (b'{"event_type": "e", "data": "\xff"}', "UTF-8"),
        (b'{"event_type": "e", "data": ' + b"[" * 5000 + b"]" * 5000 + b"}", "depth"),
        (b"", "JSON"),
    ],
)
async def test_a_bad_event_is_refused_and_nothing_stored(tmp_path: Path, body: Any, word: str) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        told = await port.post("/topics/t/publish", body, {"Content-Type": "application/json"})
        assert told.status == 400
        assert word in told.body["error"]["message"]
        assert partition_of(port, "t").high_watermark == 0


@in_loop
async def test_an_array_has_a_bound(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        event = {"event_type": "e", "data": 1}
        told = await port.post("/topics/t/publish", [event] * 10_001)
        assert (told.status, told.body["error"]["code"]) == (400, "BadRequest")
        told = await port.post("/topics/t/publish", [event] * 60_000)
        assert (told.status, told.body["error"]["code"]) == (413, "TooManyObjects")


@in_loop
async def test_a_publish_to_no_topic_is_told_and_makes_none(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        told = await port.post("/topics/t/publish", {"event_type": "e", "data": 1})
        assert (told.status, told.body["error"]["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        assert len(port.node.topics) == 0


@in_loop
async def test_a_disk_that_fails_is_told_as_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        monkeypatch.setattr(Partition, "append", fail)
        for body in ({"event_type": "e", "data": 1}, [{"event_type": "e", "data": 1}]):
            told = await port.post("/topics/t/publish", body)
            assert (told.status, told.body["error"]["code"]) == (503, "KAFKA_STORAGE_ERROR")


@in_loop
async def test_a_compacted_topic_takes_keyed_events_only(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1, configs={"cleanup.policy": "compact"})
        told = await port.post("/topics/t/publish", {"event_type": "e", "data": 1})
        assert (told.status, told.body["error"]["code"]) == (400, "INVALID_RECORD")
        await port.publish("t", 1, "key")


# --- consume


@in_loop
@pytest.mark.proves("S0-66", "S0-67", "S0-68", "S0-92")
async def test_a_partition_is_read_event_by_event(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("orders", num_partitions=1)
        for number in range(5):
            body = {
                "event_type": "order.created",
                "key": "customer-123",
                "data": {"order_id": f"ORD-{number}", "amount": 99.99},
                "metadata": {"trace": "t1"},
            }
            assert (await port.post("/topics/orders/publish", body)).status == 200
        found = await port.consume("orders", 0, from_offset=2, limit=2)
        events = found.pop("events")
        assert found == {"topic": "orders", "partition_id": 0, "next_offset": 4, "count": 2}
        assert [event["offset"] for event in events] == [2, 3]
        assert len({event["id"] for event in events}) == 2
        # A read moves nothing: it can be repeated.
        assert await port.consume("orders", 0, from_offset=2, limit=2) == {**found, "events": events}
        event = events[0]
        assert event.pop("size_bytes") >= len(b'{"order_id":"ORD-2","amount":99.99}')
        assert event == {
            "id": event["id"],
            "partition_id": 0,
            "offset": 2,
            "topic": "orders",
            "event_type": "order.created",
            "key": "customer-123",
            "data": {"order_id": "ORD-2", "amount": 99.99},
            "timestamp": port.node.clock.now_ms() // 1000,
            "metadata": {"trace": "t1"},
        }


@in_loop
@pytest.mark.proves("C-35")
async def test_where_reading_begins(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Messages", "max_messages": 6})
        for number in range(10):
            await port.publish("t", number)

        async def offsets(from_offset: int | None) -> list[int]:
            return [one["offset"] for one in (await port.consume("t", from_offset=from_offset))["events"]]

        assert await offsets(None) == await offsets(0) == [4, 5, 6, 7, 8, 9]
        assert await offsets(4) == [4, 5, 6, 7, 8, 9]
        assert await offsets(-2) == [8, 9]
        assert await offsets(-100) == [4, 5, 6, 7, 8, 9]
        assert await offsets(10) == []
        # Beyond the end is the end, and the reader goes on where it meant to.
        assert (await port.consume("t", from_offset=50))["next_offset"] == 50
        told = await port.post("/topics/t/partitions/0/consume", {"from_offset": 3})
        assert told.status == 400
        error = told.body["error"]
        assert (error["code"], error["requested"], error["oldest"], error["newest"]) == ("OffsetOutOfRange", 3, 4, 9)


@in_loop
async def test_a_reader_follows_next_offset_to_the_end_without_a_gap(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_events, "EVENTS_PER_CHUNK", 7)
    monkeypatch.setattr(topic_events, "CONSUME_BYTES_MAX", 1000)
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        await port.post("/topics/t/publish", [{"event_type": "e", "data": number} for number in range(100)])
        seen, next_offset = [], 0
        for limit in (30, 1, 50, 3, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000):
            found = await port.consume("t", from_offset=next_offset, limit=limit)
            assert found["count"] == len(found["events"]) <= limit
            seen += [event["data"] for event in found["events"]]
            next_offset = found["next_offset"]
        assert seen == list(range(len(seen)))
        assert next_offset == len(seen)
        assert len(seen) > 60


@in_loop
async def test_records_of_any_kafka_client_are_events_too(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        now_ms = port.node.clock.now_ms()
        append(
            partition_of(port, "t"),
            Record(b"k", b'{"a": 1}', now_ms, [("colour", b"blue")]),
            Record(b"\xff\xfe", b"plain text", now_ms),
            Record(None, b"\x00\xff", now_ms),
            Record(b"", None, now_ms),
        )
        events = (await port.consume("t"))["events"]
        assert [one["data"] for one in events] == [{"a": 1}, "plain text", {"base64": "AP8="}, None]
        assert [one["key"] for one in events] == ["k", {"base64": "//4="}, None, ""]
        assert [one["event_type"] for one in events] == ["message"] * 4
        assert [one["id"] for one in events] == ["evt_0", "evt_1", "evt_2", "evt_3"]
        assert events[0]["metadata"] == {"colour": "blue"}


@in_loop
@pytest.mark.parametrize(
    "body",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"limit": "5"},
        {"from_offset": "5"},
        {"from_offset": 1.5},
        {"from_offset": 2**63},
        {"from": 5},
        [],
        b"{",
    ],
)
async def test_a_bad_consume_is_refused(tmp_path: Path, body: Any) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        told = await port.post("/topics/t/partitions/0/consume", body, {"Content-Type": "application/json"})
        assert told.status == 400
        assert told.body["error"]["message"]


@in_loop
async def test_a_partition_that_is_not_there_is_told(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=2)
        for partition in ("2", "-1", "x", "99999999999999999999", "1.0", "%C2%B2"):
            told = await port.post(f"/topics/t/partitions/{partition}/consume", {})
            assert (told.status, told.body["error"]["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
            assert "0 to 1" in told.body["error"]["message"]
        assert (await port.post("/topics/none/partitions/0/consume", {})).status == 404


# --- stats


@in_loop
@pytest.mark.proves("S0-83", "C-6", "C-45")
async def test_stats_tell_what_each_partition_holds(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("orders", num_partitions=3, retention_policy={"type": "Messages", "max_messages": 4})
        for number in range(20):
            await port.publish("orders", number, f"key-{number % 2}")
        told = await port.get("/topics/orders/stats")
        assert (told.status, told.body["topic"]) == (200, "orders")
        by_id = {one["partition_id"]: one for one in told.body["partitions"]}
        assert list(by_id) == [0, 1, 2]
        used = {java_partition(f"key-{number}", 3) for number in range(2)}
        for index, one in by_id.items():
            count = 20 // len(used) if index in used else 0
            assert one == {
                "partition_id": index,
                "topic": "orders",
                "message_count": min(count, 4),
                "total_bytes": partition_of(port, "orders", index).size_bytes,
                "min_offset": max(0, count - 4),
                "max_offset": count - 1,
                "last_compaction": None,
            }
            assert (one["total_bytes"] > 0) == bool(count)
        await port.retention.round()
        port.node.clock.advance(58_999)
        told = await port.get("/topics/orders/stats")
        assert {one["last_compaction"] for one in told.body["partitions"]} == {58}
        assert (await port.get("/topics/none/stats")).status == 404


@in_loop
async def test_consume_and_stats_are_of_committed_events(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        partition = partition_of(port, "t")
        await port.publish("t", 0)
        producer = TransactionalProducer(partition, 7)
        producer.publish("a")  # 1
        await port.publish("t", 2)

        async def told() -> tuple[list[int], int, int, int]:
            consumed = await port.consume("t", 0)
            (stats,) = (await port.get("/topics/t/stats")).body["partitions"]
            ends = (await port.get("/topics/t/partitions/0/offsets")).body
            assert ends["beginning_offset"] == stats["min_offset"]
            found = [one["offset"] for one in consumed["events"]]
            return found, consumed["next_offset"], stats["max_offset"], ends["end_offset"]

        assert await told() == ([0], 1, 0, 1)
        producer.abort()  # 3
        assert await told() == ([0, 2], 4, 3, 4)
        producer.publish("b")  # 4
        producer.commit()  # 5
        assert await told() == ([0, 2, 4], 6, 5, 6)

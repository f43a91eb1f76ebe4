"""Topics over REST: made with retention policies, widened, deleted; and that each policy holds."""

from pathlib import Path

import pytest

from tests.support.engines import Engine
from tests.support.node import in_loop
from tests.web.topics.topics_port import Port, TopicsPort, engine_port, topics_port

MIB = 1024 * 1024


async def configs(port: TopicsPort, topic: str) -> dict[str, str]:
    return dict((await port.get(f"/topics/{topic}")).body["configs"])


async def offsets(port: Port, topic: str = "t") -> list[int]:
    """What can still be read, after a round of retention."""
    await port.retention.round()
    return [event["offset"] for event in (await port.consume(topic, limit=10_000))["events"]]


# --- create


@in_loop
@pytest.mark.proves("S0-56", "S0-57", "C-46")
async def test_a_topic_is_made_as_asked(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        asked = {
            "num_partitions": 4,
            "replication_factor": 1,
            "retention_policy": {"type": "Combined", "retention_secs": 3600, "max_bytes": 9 * MIB, "max_messages": 7},
            "segment_bytes": 2 * MIB,
        }
        told = await port.post("/topics/orders", asked)
        assert told.status == 201
        assert told.body == {"success": True, "topic": "orders", "num_partitions": 4, "replication_factor": 1}
        topic = port.node.topics.get("orders")
        assert topic is not None
        assert len(topic.partitions) == 4
        assert topic.settings.segment_bytes == 2 * MIB
        assert (topic.settings.retention_ms, topic.settings.retention_bytes) == (3_600_000, 9 * MIB)
        assert topic.settings.retention_messages == 7


@in_loop
@pytest.mark.proves("S0-88")
async def test_what_is_left_out_has_the_defaults_of_streams(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        told = await port.post("/topics/orders")
        assert told.body["num_partitions"] == 3
        assert told.body["replication_factor"] == 1
        found = await configs(port, "orders")
        assert found["retention.ms"] == "3600000"
        assert found["retention.bytes"] == "104857600"
        assert found["kwire.retention.messages"] == "100000"
    async with topics_port(
        tmp_path / "other",
        "kwire.streams.partitions=5",
        "kwire.streams.retention.type=Messages",
        "kwire.streams.retention.messages=9",
        "kwire.streams.segment.bytes=2097152",
    ) as port:
        assert (await port.post("/topics/orders", {})).body["num_partitions"] == 5
        found = await configs(port, "orders")
        assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
        assert (found["kwire.retention.messages"], found["segment.bytes"]) == ("9", "2097152")


@in_loop
@pytest.mark.proves("C-42")
async def test_topics_made_elsewhere_keep_kafkas_defaults(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.node.create("plain")
        found = await configs(port, "plain")
        assert (found["retention.ms"], found["kwire.retention.messages"]) == ("604800000", "-1")


@in_loop
async def test_any_setting_can_be_given_and_wins(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", configs={"max.message.bytes": "7000", "retention.ms": "5000"})
        found = await configs(port, "t")
        assert (found["max.message.bytes"], found["retention.ms"]) == ("7000", "5000")


@in_loop
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"num_partitions": 0}, "num_partitions"),
        ({"num_partitions": 10_001}, "num_partitions"),
        ({"num_partitions": "3"}, "num_partitions"),
        ({"num_partitions": 1.5}, "num_partitions"),
        ({"partitions": 3}, "partitions"),
        ({"replication_factor": 2}, "replication_factor"),
        ({"segment_bytes": 1000}, "segment_bytes"),
        ({"retention_policy": {"type": "Sometimes"}}, "Sometimes"),
        ({"retention_policy": {"retention_secs": 5}}, "type"),
        ({"retention_policy": {"type": "Time"}}, "retention_secs"),
        ({"retention_policy": {"type": "Time", "retention_secs": 0}}, "retention_secs"),
        ({"retention_policy": {"type": "Time", "retention_secs": 2**62}}, "retention_secs"),
        ({"retention_policy": {"type": "Size", "max_bytes": -1}}, "max_bytes"),
        ({"retention_policy": {"type": "Messages", "max_messages": None}}, "max_messages"),
        ({"retention_policy": {"type": "Infinite", "max_bytes": 5}}, "max_bytes"),
        ({"configs": {"no.such": "x"}}, "no.such"),
        ({"configs": {"retention.ms": "soon"}}, "retention.ms"),
        ({"configs": {"kwire.room": "true"}}, "kwire.room"),
        ([], "object"),
        (b"{", "JSON"),
    ],
)
async def test_a_bad_request_makes_nothing_and_says_why(tmp_path: Path, body: object, word: str) -> None:
    async with topics_port(tmp_path) as port:
        told = await port.post("/topics/t", body, {"Content-Type": "application/json"})
        assert told.status == 400
        assert word in told.body["error"]["message"]
        assert len(port.node.topics) == 0


@in_loop
async def test_names_are_checked_at_every_door(engine: Engine) -> None:
    async with engine_port(engine) as port:
        assert (await port.post("/topics/a%20b", {})).status == 400
        assert (await port.post("/topics/" + "x" * 250, {})).status == 400
        for method, path in (
            ("POST", "/topics/__x"),
            ("POST", "/topics/__x/publish"),
            ("GET", "/topics/__consumer_offsets"),
            ("DELETE", "/topics/__consumer_offsets"),
            ("GET", "/topics/__x/stats"),
            ("PUT", "/topics/__x/partitions"),
            ("POST", "/topics/__x/partitions/0/consume"),
        ):
            told = await port.ask(method, path, {} if method != "GET" else None)
            assert (told.status, told.body["error"]["code"]) == (400, "InvalidName"), path


@in_loop
async def test_a_topic_is_made_once(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t")
        told = await port.post("/topics/t", {})
        assert (told.status, told.body["error"]["code"]) == (409, "TOPIC_ALREADY_EXISTS")


@in_loop
@pytest.mark.proves("S0-88")
async def test_partitioned_topics_can_be_switched_off(tmp_path: Path) -> None:
    async with topics_port(tmp_path, "kwire.streams.enable=false") as port:
        await port.node.create("t")
        for method, path in (
            ("POST", "/topics/new"),
            ("POST", "/topics/t/publish"),
            ("POST", "/topics/t/partitions/0/consume"),
            ("GET", "/topics/t/stats"),
            ("PUT", "/topics/t/partitions"),
            ("DELETE", "/topics/t"),
        ):
            told = await port.ask(method, path)
            assert (told.status, told.body["error"]["code"]) == (403, "StreamsDisabled"), path


# --- retention, as it comes to be over this door


@in_loop
@pytest.mark.proves("S0-58", "S0-91", "S0-92")
async def test_time_retention_lets_old_events_go(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Time", "retention_secs": 60})
        for number in range(5):
            await port.publish("t", number)
            port.node.clock.advance(20_000)
        # Ages 100, 80, 60, 40 and 20 seconds. A segment is a quarter of the time long, so each has its own.
        assert await offsets(port) == [2, 3, 4]
        port.node.clock.advance(61_000)
        assert await offsets(port) == []
        assert (await port.consume("t"))["next_offset"] == 5


@in_loop
@pytest.mark.proves("S0-59", "S0-91", "S0-92")
async def test_size_retention_lets_the_oldest_go(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Size", "max_bytes": 4 * MIB})
        assert (await configs(port, "t"))["segment.bytes"] == str(MIB)
        for number in range(20):
            await port.publish("t", "x" * 500_000 + str(number))
        kept = await offsets(port)
        assert kept == list(range(kept[0], 20))
        size_bytes = (await port.get("/topics/t/stats")).body["partitions"][0]["total_bytes"]
        assert 4 * MIB <= size_bytes < 5.5 * MIB


@in_loop
@pytest.mark.proves("S0-60", "S0-91")
async def test_count_retention_keeps_the_newest_to_the_event(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Messages", "max_messages": 3})
        for number in range(10):
            await port.publish("t", number)
        assert await offsets(port) == [7, 8, 9]


@in_loop
@pytest.mark.proves("S0-61", "S0-91", "S0-92")
@pytest.mark.parametrize("tightest", ["retention_secs", "max_bytes", "max_messages"])
async def test_of_combined_limits_the_tightest_wins(tmp_path: Path, tightest: str) -> None:
    wide = {"retention_secs": 10**6, "max_bytes": 10**12, "max_messages": 10**6}
    tight = {"retention_secs": 60, "max_bytes": 2 * MIB, "max_messages": 2}
    async with topics_port(tmp_path) as port:
        policy = {"type": "Combined", **wide, tightest: tight[tightest]}
        await port.create("t", num_partitions=1, retention_policy=policy)
        for _ in range(6):
            await port.publish("t", "x" * 700_000)
            port.node.clock.advance(30_000)
        kept = await offsets(port)
        assert kept == {"retention_secs": [4, 5], "max_bytes": [3, 4, 5], "max_messages": [4, 5]}[tightest]


@in_loop
@pytest.mark.proves("S0-62", "S0-91")
async def test_infinite_retention_keeps_everything(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Infinite"})
        for _ in range(3):
            await port.publish("t", "x" * 700_000)
            port.node.clock.advance(10**12)
        assert await offsets(port) == [0, 1, 2]


# --- more partitions, none at all


@in_loop
@pytest.mark.proves("S0-87")
async def test_partitions_are_added_and_used(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=2)
        before = await port.publish("t", 1)
        told = await port.ask("PUT", "/topics/t/partitions", {"num_partitions": 6})
        assert (told.status, told.body["num_partitions"]) == (200, 6)
        used = {(await port.publish("t", number))["partition_id"] for number in range(6)}
        assert used == set(range(6))
        assert (await port.consume("t", before["partition_id"], limit=1))["events"][0]["data"] == 1
        again = await port.ask("PUT", "/topics/t/partitions", {"num_partitions": 6})
        assert again == told


@in_loop
async def test_a_topic_never_shrinks_and_a_room_has_one_partition(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=2)
        told = await port.ask("PUT", "/topics/t/partitions", {"num_partitions": 1})
        assert (told.status, told.body["error"]["code"]) == (409, "INVALID_PARTITIONS")
        await port.node.create("room", kwire_room="true")
        told = await port.ask("PUT", "/topics/room/partitions", {"num_partitions": 2})
        assert (told.status, told.body["error"]["code"]) == (409, "RoomHasOnePartition")
        for body in ({}, {"num_partitions": 0}, {"num_partitions": 10_001}):
            assert (await port.ask("PUT", "/topics/t/partitions", body)).status == 400
        assert (await port.ask("PUT", "/topics/none/partitions", {"num_partitions": 2})).status == 404


@in_loop
@pytest.mark.proves("S0-91")
async def test_a_topic_is_deleted_with_its_partitions(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=2)
        await port.publish("t", 1)
        told = await port.ask("DELETE", "/topics/t")
        assert (told.status, told.body) == (200, {"success": True, "topic": "t"})
        assert (await port.get("/topics")).body == []
        assert (await port.ask("DELETE", "/topics/t")).status == 404
        # A later one of that name has nothing of it.
        await port.create("t", num_partitions=1)
        assert (await port.consume("t"))["events"] == []


@in_loop
async def test_deletion_can_be_forbidden(engine: Engine) -> None:
    async with engine_port(engine, "delete.topic.enable=false") as port:
        await port.create("t")
        told = await port.ask("DELETE", "/topics/t")
        assert (told.status, told.body["error"]["code"]) == (403, "TOPIC_DELETION_DISABLED")

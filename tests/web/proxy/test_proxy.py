"""REST Proxy v2: produce and metadata by media type, and errors with its codes."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, KafkaError
from kwire.web.proxy import metadata as proxy_metadata
from kwire.web.proxy import produce as proxy_produce
from kwire.web.proxy.media import BINARY, JSON_RECORDS, PROXY, TEXT_RECORDS
from storage.batch.record_batch import Record, read_records
from tests.support.batches import split_batches
from tests.support.engines import Engine
from tests.support.node import NODE_ID, in_loop
from tests.web.topics.test_events import java_partition
from tests.web.topics.topics_port import Port, Told, TopicsPort, engine_port, topics_port

ACCEPT = {"Accept": PROXY}


def base64(raw: bytes) -> str:
    return b64encode(raw).decode()


async def produce(port: TopicsPort, path: str, records: object, media_type: str = JSON_RECORDS) -> Told:
    body = records if isinstance(records, bytes) else {"records": records}
    return await port.post(path, body, {"Content-Type": media_type, **ACCEPT})


def stored(port: Port, topic: str = "t", partition: int = 0) -> list[Record]:
    found = port.node.topics.get(topic)
    assert found is not None
    read = found.partitions[partition].read(0, 10_000_000)
    return [record for batch in split_batches(read.view) for record in read_records(batch, 10_000_000)]


def offsets(told: Told) -> list[tuple[int, int]]:
    assert told.status == 200
    assert told.content_type == PROXY
    assert set(told.body) == {"offsets", "key_schema_id", "value_schema_id"}
    assert all(one["error_code"] is None and one["error"] is None for one in told.body["offsets"])
    return [(one["partition"], one["offset"]) for one in told.body["offsets"]]


def error_code(told: Told, status: int) -> int:
    assert told.status == status, told
    assert told.content_type == PROXY
    assert set(told.body) == {"error_code", "message"}
    assert told.body["message"]
    return int(told.body["error_code"])


# --- produce


@in_loop
async def test_binary_records_are_stored_as_their_bytes(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        records = [
            {"key": base64(b"\x00\xff"), "value": base64(b"\xfe value")},
            {"value": base64(b"")},
            {"key": base64(b"k"), "value": None},
        ]
        for media_type in (BINARY, "application/vnd.kafka.v2+json", f"{BINARY}; charset=utf-8"):
            told = await produce(port, "/topics/t", records, media_type)
            assert len(offsets(told)) == 3
        found = [(one.key, one.value) for one in await port.stored()]
        assert found == [(b"\x00\xff", b"\xfe value"), (None, b""), (b"k", None)] * 3


@in_loop
async def test_json_records_are_stored_as_compact_json(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        body = b'{"records": [{"key": {"id" : 1}, "value": {"a": [1, 2.50, 12345678901234567890]}}, {"value": null}]}'
        told = await produce(port, "/topics/t", body)
        assert offsets(told) == [(0, 0), (0, 1)]
        assert [(one.key, one.value) for one in await port.stored()] == [
            (b'{"id":1}', b'{"a":[1,2.50,12345678901234567890]}'),
            (None, None),
        ]


@in_loop
async def test_text_records_are_stored_as_text(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        told = await produce(port, "/topics/t", [{"key": "schlüssel", "value": "ein Wert"}], TEXT_RECORDS)
        assert offsets(told) == [(0, 0)]
        assert [(one.key, one.value) for one in await port.stored()] == [("schlüssel".encode(), b"ein Wert")]


@in_loop
async def test_records_go_where_they_say_or_where_their_key_says_or_round(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=5)
        told = await produce(
            port, "/topics/t", [{"value": 1, "partition": 3}, {"value": 2, "partition": 3, "key": "k"}]
        )
        assert offsets(told) == [(3, 0), (3, 1)]
        told = await produce(
            port, "/topics/t", [{"key": f"k{number}", "value": 1} for number in range(20)], TEXT_RECORDS
        )
        assert told.status == 422  # a value of text is text
        told = await produce(
            port, "/topics/t", [{"key": f"k{number}", "value": ""} for number in range(20)], TEXT_RECORDS
        )
        assert [partition for partition, _ in offsets(told)] == [
            java_partition(f"k{number}", 5) for number in range(20)
        ]
        told = await produce(port, "/topics/t", [{"value": number} for number in range(10)])
        assert [partition for partition, _ in offsets(told)] == [0, 1, 2, 3, 4] * 2


@in_loop
async def test_a_partition_can_be_named_in_the_path(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=3)
        told = await produce(port, "/topics/t/partitions/2", [{"key": "k", "value": 1}, {"value": 2, "partition": 2}])
        assert offsets(told) == [(2, 0), (2, 1)]
        told = await produce(port, "/topics/t/partitions/2", [{"value": 2, "partition": 1}])
        assert error_code(told, 422) == 422


@in_loop
async def test_headers_and_timestamps_are_stored(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        now_ms = port.node.clock.now_ms()
        headers = [{"key": "colour", "value": base64(b"blue")}, {"key": "none", "value": None}]
        records = [
            {"value": 0, "headers": headers},
            {"value": 1, "timestamp": now_ms - 5000},
            {"value": 2, "timestamp": now_ms - 5000},
            {"value": 3},
        ]
        told = await produce(port, "/topics/t", records)
        assert offsets(told) == [(0, 0), (0, 1), (0, 2), (0, 3)]
        found = stored(port)
        assert [one.value for one in found] == [b"0", b"1", b"2", b"3"]
        assert list(found[0].headers) == [("colour", b"blue"), ("none", None)]
        assert [one.timestamp_ms for one in found] == [now_ms, now_ms - 5000, now_ms - 5000, now_ms]


@in_loop
async def test_many_records_are_stored_in_order_in_as_many_batches_as_it_takes(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=2, configs={"max.message.bytes": "10000"})
        records = [{"value": "x" * 100 + str(number), "partition": number % 2} for number in range(1200)]
        told = await produce(port, "/topics/t", records, TEXT_RECORDS)
        assert offsets(told) == [(number % 2, number // 2) for number in range(1200)]
        for partition in range(2):
            found = [int((one.value or b"").lstrip(b"x")) for one in await port.stored(partition=partition)]
            assert found == list(range(partition, 1200, 2))


@in_loop
async def test_a_record_that_does_not_fit_is_answered_for_itself(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1, configs={"max.message.bytes": "5000"})
        told = await produce(port, "/topics/t", [{"value": "a"}, {"value": "x" * 6000}, {"value": "b"}])
        assert told.status == 200
        first, second, third = told.body["offsets"]
        assert (first["offset"], third["offset"]) == (0, 1)
        assert (second["partition"], second["offset"], second["error_code"]) == (None, None, 50002)
        assert "max.message.bytes" in second["error"]


@in_loop
async def test_a_record_that_may_be_sent_again_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        monkeypatch.setattr(Partition, "append", fail)
        told = await produce(port, "/topics/t", [{"value": 1}])
        assert told.status == 200
        assert told.body["offsets"] == [
            {"partition": None, "offset": None, "error_code": 50003, "error": "the disk is gone"}
        ]


@in_loop
async def test_a_topic_is_made_if_topics_make_themselves(tmp_path: Path) -> None:
    async with topics_port(tmp_path, "num.partitions=4") as port:
        assert len(offsets(await produce(port, "/topics/new", [{"value": 1}]))) == 1
        topic = port.node.topics.get("new")
        assert topic is not None
        assert (len(topic.partitions), dict(topic.configs)) == (4, {})
        # But not by a request that it could not meet.
        for path, partition in (("/topics/x", 4), ("/topics/x/partitions/4", None), ("/topics/x/partitions/x", None)):
            assert error_code(await produce(port, path, [{"value": 1, "partition": partition}]), 404) == 40402
        assert port.node.topics.get("x") is None
        assert offsets(await produce(port, "/topics/x/partitions/3", [{"value": 1}])) == [(3, 0)]
    async with topics_port(tmp_path / "other", "auto.create.topics.enable=false") as port:
        assert error_code(await produce(port, "/topics/new", [{"value": 1}]), 404) == 40401


@in_loop
@pytest.mark.parametrize(
    ("media_type", "body", "status", "code"),
    [
        (JSON_RECORDS, b"{", 400, 400),
        (JSON_RECORDS, b"", 400, 400),
        (JSON_RECORDS, b"{}", 422, 422),
        (JSON_RECORDS, b"[]", 422, 422),
        (JSON_RECORDS, b'{"records": []}', 422, 422),
        (JSON_RECORDS, b'{"records": [5]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"valu": 5}]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"value": 1, "partition": "0"}]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"value": 1, "partition": -1}]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"value": 1, "timestamp": -1}]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"value": 1, "headers": [{"key": "a", "value": "?"}]}]}', 422, 422),
        (JSON_RECORDS, b'{"records": [{"value": 1}, {"value": 2, "partition": 9}]}', 404, 40402),
        (JSON_RECORDS, b'{"records": [{"value": "\xff"}]}', 422, 422),
        (BINARY, b'{"records": [{"value": "not base64!"}]}', 422, 422),
        (BINARY, b'{"records": [{"value": {"a": 1}}]}', 422, 422),
        (TEXT_RECORDS, b'{"records": [{"value": 1}]}', 422, 422),
        ("application/vnd.kafka.avro.v2+json", b'{"records": [{"value": 1}]}', 415, 415),
        ("application/vnd.kafka.json.v1+json", b'{"records": [{"value": 1}]}', 415, 415),
        ("application/vnd.kafka.json.v3+json", b'{"records": [{"value": 1}]}', 415, 415),
        ("application/vnd.kafka.yaml.v2+json", b'{"records": [{"value": 1}]}', 415, 415),
    ],
)
async def test_a_bad_request_is_refused_whole_with_its_code(
    tmp_path: Path, media_type: str, body: bytes, status: int, code: int
) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1)
        for path in ("/topics/t", "/topics/t/partitions/0"):
            assert error_code(await produce(port, path, body, media_type), status) == code
        assert stored(port) == []


@in_loop
async def test_bodies_have_a_bound(engine: Engine) -> None:
    async with engine_port(engine, "kwire.http.max.body.bytes=2000") as port:
        await port.create("t", num_partitions=1)
        assert error_code(await produce(port, "/topics/t", [{"value": "x" * 3000}]), 413) == 413
    async with engine_port(engine) as port:
        await port.create("u", num_partitions=1)
        assert error_code(await produce(port, "/topics/u", [{}] * 10_001), 422) == 422
        assert error_code(await produce(port, "/topics/u", [{}] * 100_000), 413) == 413
        assert len(offsets(await produce(port, "/topics/u", [{}] * 10_000))) == 10_000


@in_loop
async def test_internal_names_are_refused_with_a_code(engine: Engine) -> None:
    async with engine_port(engine) as port:
        assert error_code(await produce(port, "/topics/__consumer_offsets", [{"value": 1}]), 400) == 40002
        assert error_code(await produce(port, "/topics/a%20b", [{"value": 1}]), 400) == 40002


@in_loop
async def test_the_media_type_decides_between_producing_and_making_a_topic(engine: Engine) -> None:
    async with engine_port(engine, "auto.create.topics.enable=false") as port:
        body: Any = {"records": [{"value": 1}]}
        assert (await port.post("/topics/t", body)).body["error"]["code"] == "BadRequest"
        assert error_code(await produce(port, "/topics/t", body["records"]), 404) == 40401
        assert (await port.post("/topics/t", {}, ACCEPT)).status == 201
        told = await port.post("/topics/t/partitions/0", {"records": [{"value": 1}]})
        assert (told.status, told.body["error"]["code"]) == (415, "UnsupportedMediaType")


# --- metadata


@in_loop
async def test_topics_and_rooms_are_listed_and_internal_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_metadata, "NAMES_PER_CHUNK", 2)
    async with topics_port(tmp_path) as port:
        for name in ("orders", "events", "a.b", "order-items"):
            await port.create(name)
        await port.node.create("chat-room-1", kwire_room="true")
        await port.node.topics.offsets_topic()
        told = await port.get("/topics", ACCEPT)
        assert (told.status, told.content_type) == (200, PROXY)
        assert told.body == ["a.b", "chat-room-1", "events", "order-items", "orders"]
        assert (await port.get("/topics")).content_type == "application/json"
        assert (await port.get("/topics?prefix=order")).body == ["order-items", "orders"]
        assert (await port.get("/topics?limit=2")).body == ["a.b", "chat-room-1"]
        assert (await port.get("/topics?limit=2&after=chat-room-1")).body == ["events", "order-items"]
        assert (await port.get("/topics?prefix=order&after=order-items")).body == ["orders"]
        assert (await port.get("/topics?limit=0")).status == 400
        assert (await port.get("/topics?limits=1")).status == 400


@in_loop
async def test_a_topic_is_described_with_settings_and_partitions(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=2, configs={"cleanup.policy": "compact"})
        told = await port.get("/topics/t", ACCEPT)
        assert (told.status, told.content_type) == (200, PROXY)
        partitions = [
            {"partition": index, "leader": NODE_ID, "replicas": [{"broker": NODE_ID, "leader": True, "in_sync": True}]}
            for index in range(2)
        ]
        assert told.body["name"] == "t"
        assert told.body["configs"]["cleanup.policy"] == "compact"
        assert "max.message.bytes" in told.body["configs"]
        assert told.body["partitions"] == partitions
        assert (await port.get("/topics/t/partitions", ACCEPT)).body == partitions
        assert (await port.get("/topics/t/partitions/1", ACCEPT)).body == partitions[1]
        assert (await port.get("/brokers", ACCEPT)).body == {"brokers": [NODE_ID]}


@in_loop
async def test_the_offsets_of_a_partition_are_told(tmp_path: Path) -> None:
    async with topics_port(tmp_path) as port:
        await port.create("t", num_partitions=1, retention_policy={"type": "Messages", "max_messages": 2})
        assert (await port.get("/topics/t/partitions/0/offsets")).body == {"beginning_offset": 0, "end_offset": 0}
        await produce(port, "/topics/t", [{"value": number} for number in range(5)])
        assert (await port.get("/topics/t/partitions/0/offsets")).body == {"beginning_offset": 3, "end_offset": 5}


@in_loop
async def test_what_is_not_there_has_its_code(engine: Engine) -> None:
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=1)
        for path in ("/topics/none", "/topics/none/partitions", "/topics/none/partitions/0"):
            assert error_code(await port.get(path, ACCEPT), 404) == 40401
        for path in ("/topics/t/partitions/1", "/topics/t/partitions/x", "/topics/t/partitions/1/offsets"):
            assert error_code(await port.get(path, ACCEPT), 404) == 40402
        assert error_code(await port.ask("DELETE", "/brokers", None, ACCEPT), 405) == 405
        assert error_code(await port.get("/topics/t/nothing", ACCEPT), 404) == 404
        # Who does not ask for the proxy's types gets the errors of all other resources.
        assert (await port.get("/topics/none")).body["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


@in_loop
async def test_long_requests_give_the_loop_its_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_produce, "RECORDS_PER_CHUNK", 3)
    monkeypatch.setattr(proxy_metadata, "PARTITIONS_PER_CHUNK", 3)
    async with engine_port(engine) as port:
        await port.create("t", num_partitions=8)
        told = await produce(port, "/topics/t", [{"value": number} for number in range(20)])
        assert offsets(told) == [(number % 8, number // 8) for number in range(20)]
        assert len((await port.get("/topics/t/partitions")).body) == 8

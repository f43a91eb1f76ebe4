"""Partitioned topics over REST, on a real server and beside Kafka clients."""

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewPartitions

from tests.support.clients import DEADLINE_S, read_topic, unique_name
from tests.support.http_json import HttpAnswer, ask
from tests.support.server import KwireProcess, wait_until


def post(process: KwireProcess, path: str, body: object = None) -> HttpAnswer:
    return ask(f"{process.http_url}{path}", "POST", {} if body is None else body)


def get(process: KwireProcess, path: str) -> HttpAnswer:
    return ask(f"{process.http_url}{path}")


def create(process: KwireProcess, stem: str, **fields: object) -> str:
    name = unique_name(stem)
    answer = post(process, f"/topics/{name}", fields)
    assert answer.status == 201, answer
    return name


def publish(process: KwireProcess, topic: str, data: object, **fields: object) -> dict[str, Any]:
    answer = post(process, f"/topics/{topic}/publish", {"event_type": "e", "data": data, **fields})
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.body
    return body


def consume(process: KwireProcess, topic: str, partition: int, **fields: object) -> list[dict[str, Any]]:
    answer = post(process, f"/topics/{topic}/partitions/{partition}/consume", fields)
    assert answer.status == 200, answer
    events: list[dict[str, Any]] = answer.body["events"]
    return events


@pytest.mark.proves("S0-63", "S0-68", "S0-92")
def test_rest_and_kafka_clients_share_one_log_and_one_placement(served: KwireProcess) -> None:
    topic = create(served, "rest-shared", num_partitions=5)
    producer = KafkaProducer(bootstrap_servers=served.bootstrap)
    placed = {}
    for number in range(20):
        key = f"customer-{number}"
        told = publish(served, topic, {"from": "rest"}, key=key)
        sent = producer.send(topic, value=b'{"from": "kafka"}', key=key.encode()).get(timeout=DEADLINE_S)
        # The same key is in the same partition, whoever hashes it.
        assert (told["partition_id"], told["offset"]) == (sent.partition, sent.offset - 1)
        placed[key] = told["partition_id"]
    producer.close(timeout=DEADLINE_S)
    by_kafka = read_topic(served.bootstrap, topic)
    for partition, records in by_kafka.items():
        events = consume(served, topic, partition)
        assert [(one["offset"], one["key"], one["data"]) for one in events] == [
            (record.offset, record.key.decode(), json.loads(record.value)) for record in records
        ]
        assert all(placed[one["key"]] == partition for one in events)


@pytest.mark.proves("S0-87")
def test_partitions_added_by_either_door_are_seen_at_both(served: KwireProcess) -> None:
    topic = create(served, "rest-widen", num_partitions=1)
    answer = ask(f"{served.http_url}/topics/{topic}/partitions", "PUT", {"num_partitions": 2})
    assert answer.body["num_partitions"] == 2
    with closing(KafkaAdminClient(bootstrap_servers=served.bootstrap)) as admin:
        admin.create_partitions({topic: NewPartitions(total_count=4)})
    wait_until(lambda: len(get(served, f"/topics/{topic}/stats").body["partitions"]) == 4, "four partitions")
    assert len(get(served, f"/topics/{topic}/partitions").body) == 4
    assert {publish(served, topic, number)["partition_id"] for number in range(4)} == {0, 1, 2, 3}
    assert sorted(len(records) for records in read_topic(served.bootstrap, topic).values()) == [1, 1, 1, 1]


@pytest.mark.proves("S0-83")
def test_topics_events_and_limits_survive_a_kill(start_kwire: Callable[..., KwireProcess]) -> None:
    process = start_kwire(settings={"log.retention.check.interval.ms": "200"})
    topic = create(process, "rest-kill", num_partitions=2, retention_policy={"type": "Messages", "max_messages": 5})
    for number in range(20):
        publish(process, topic, number, key=f"k{number % 4}")
    before = [consume(process, topic, partition) for partition in range(2)]
    process.kill()
    process.start()
    process.ready()
    assert [consume(process, topic, partition) for partition in range(2)] == before
    assert all(len(events) <= 5 for events in before)
    stats = wait_until(
        lambda: [
            one
            for one in get(process, f"/topics/{topic}/stats").body["partitions"]
            if one["last_compaction"] is not None
        ],
        "a round of retention",
    )
    assert [(one["message_count"], one["max_offset"] - one["min_offset"] + 1) for one in stats] == [
        (len(events), len(events)) for events in before
    ]
    assert get(process, f"/topics/{topic}").body["configs"]["kwire.retention.messages"] == "5"


def test_one_partition_takes_every_event_of_large_batches_on_one_connection(served: KwireProcess) -> None:
    topic = create(served, "rest-batches", num_partitions=1, retention_policy={"type": "Infinite"})
    count, requests = 1000, 20
    body = json.dumps([{"event_type": "tick", "data": {"number": 1, "text": "x" * 50}}] * count).encode()
    assert served.http_port is not None
    connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=DEADLINE_S)
    for _ in range(requests):
        connection.request("POST", f"/topics/{topic}/publish", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
    connection.close()
    assert get(served, f"/topics/{topic}/stats").body["partitions"][0]["message_count"] == count * requests


@pytest.mark.proves("S0-85")
def test_a_topic_is_made_shared_by_a_group_read_and_committed(kwire: KwireProcess) -> None:
    topic, group = create(kwire, "rest-library", num_partitions=4), unique_name("rest-library")
    for number in range(40):
        publish(kwire, topic, number, key=f"k{number}")
    made = post(kwire, f"/consumer-groups/{group}", {"topic": topic, "partition_count": 4, "strategy": "range"})
    assert made.status == 201, made
    member = post(kwire, f"/consumer-groups/{group}/join", {"session_timeout_secs": 30}).body["member_id"]

    def assignment() -> list[int]:
        found: list[int] = get(kwire, f"/consumer-groups/{group}/members/{member}/assignment").body["partitions"]
        return found

    assert wait_until(assignment, "an assignment") == [0, 1, 2, 3]
    seen = []
    for partition in assignment():
        events = consume(kwire, topic, partition, from_offset=0, limit=100)
        seen += [event["data"] for event in events]
        committed = {"partition_id": partition, "offset": events[-1]["offset"] + 1}
        answer = post(kwire, f"/consumer-groups/{group}/offsets/commit", {**committed, "member_id": member})
        assert answer.body == {"success": True, **committed}
        found = get(kwire, f"/consumer-groups/{group}/offsets/{partition}").body
        assert found == {"group_id": group, **committed}
    assert sorted(seen) == list(range(40))

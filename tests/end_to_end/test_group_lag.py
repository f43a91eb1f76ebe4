"""Lag of a group whose consumer is a stock client, as the server tells it: over HTTP and in the metrics."""

import json
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from typing import Any

import confluent_kafka
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients import DEADLINE_S, Topics, poll_records, produce_values, unique_name
from tests.support.server import KwireProcess, wait_until

HTTP_TIMEOUT_S = 30.0
POLL_S = 1.0
# A record of this test is younger.
OLD_S = 1_000


def get(process: KwireProcess, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{process.http_url}{path}", timeout=HTTP_TIMEOUT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def group_of(process: KwireProcess, group_id: str) -> Any:
    """The group as the API describes it, once the server has loaded its groups."""
    path = f"/api/v1/groups/{urllib.parse.quote(group_id, safe='')}"

    def found() -> Any:
        status, answer = get(process, path)
        return None if status == 503 else answer

    return wait_until(found, "groups are loaded")


def lag_series(process: KwireProcess, group_id: str) -> dict[tuple[str, str, str], float]:
    """Values by the name of the series, topic and partition."""
    with urllib.request.urlopen(f"{process.http_url}/metrics", timeout=HTTP_TIMEOUT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, sample.labels["topic"], sample.labels["partition"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("kwire_group_lag_") and sample.labels.get("group") == group_id
    }


def test_lag_of_a_stock_consumer_is_told_until_its_group_is_gone(killable: KwireProcess) -> None:
    process = killable
    topics = Topics(process.bootstrap)
    topic, group_id = topics.create("lag", 2), unique_name("lag group/é")
    topics.close()
    produce_values(process.bootstrap, topic, [b"first", b"second", b"third"])
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=process.bootstrap,
        group_id=group_id,
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    try:
        poll_records(consumer, 3)
        consumer.commit({first: OffsetAndMetadata(1, "half way", -1), second: OffsetAndMetadata(0, "", -1)})
        found = group_of(process, group_id)
        assert (found["state"], found["member_count"], found["lag_offsets"]) == ("Stable", 1, 2)
        (member,) = found["members"]
        assert member["client_id"] == "reader"
        assert member["assignment"] == [{"topic": topic, "partitions": [0, 1]}]
        behind, done = found["offsets"]
        assert (behind["committed_offset"], behind["metadata"], behind["high_watermark"]) == (1, "half way", 3)
        assert behind["member_id"] == done["member_id"] == member["member_id"]
        assert behind["lag_offsets"] == 2
        assert 0 <= behind["lag_seconds"] < OLD_S
        assert (done["lag_offsets"], done["lag_seconds"]) == (0, 0)
        assert group_id in [group["group_id"] for group in get(process, "/api/v1/groups")[1]["groups"]]
    finally:
        consumer.close(autocommit=False)

    # Nobody reads any more, and the server is another one: the group is as far behind as it was, and getting later.
    assert process.stop() == 0
    process.restart()
    later = group_of(process, group_id)
    assert (later["state"], later["member_count"], later["lag_offsets"]) == ("Empty", 0, 2)
    assert later["lag_seconds"] > behind["lag_seconds"]
    series = lag_series(process, group_id)
    assert series["kwire_group_lag_offsets", topic, "0"] == 2
    assert series["kwire_group_lag_seconds", topic, "0"] >= later["lag_seconds"]
    assert series["kwire_group_lag_offsets", topic, "1"] == series["kwire_group_lag_seconds", topic, "1"] == 0

    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        admin.delete_groups([group_id])
    finally:
        admin.close()
    assert lag_series(process, group_id) == {}
    assert get(process, f"/api/v1/groups/{urllib.parse.quote(group_id, safe='')}")[0] == 404


def test_lag_in_seconds_follows_the_times_of_records(kwire: KwireProcess, topics: Topics) -> None:
    topic, group_id = topics.create("old", 1), unique_name("old")
    consumer = KafkaConsumer(bootstrap_servers=kwire.bootstrap, group_id=group_id, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    try:
        consumer.assign([partition])

        def is_later(before: float) -> bool:
            return bool(group_of(kwire, group_id)["lag_seconds"] > before)

        for number in range(2):
            produce_values(kwire.bootstrap, topic, [b"value"])
            consumer.commit({partition: OffsetAndMetadata(number, "", -1)})
            before = group_of(kwire, group_id)["lag_seconds"]
            wait_until(partial(is_later, before), "time passes")
        consumer.commit({partition: OffsetAndMetadata(2, "", -1)})
        assert group_of(kwire, group_id)["lag_seconds"] == 0
    finally:
        consumer.close(autocommit=False)


def test_a_group_of_the_consumer_protocol_is_described_too(kwire: KwireProcess, topics: Topics) -> None:
    topic, group_id = topics.create("lag", 3), unique_name("lag")
    produce_values(kwire.bootstrap, topic, [b"first", b"second"])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kwire.bootstrap,
            "group.id": group_id,
            "group.protocol": "consumer",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        message = wait_until(lambda: consumer.poll(POLL_S), "a record comes", timeout_s=DEADLINE_S)
        assert message.value() == b"first"
        consumer.commit(message, asynchronous=False)
        found = group_of(kwire, group_id)
        assert (found["type"], found["state"], found["member_count"]) == ("consumer", "Stable", 1)
        (member,) = found["members"]
        assert member["client_id"] == "reader"
        assert member["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
        committed, *others = found["offsets"]
        assert (committed["committed_offset"], committed["lag_offsets"]) == (1, 1)
        assert committed["member_id"] == member["member_id"]
        assert [(one["partition"], one["committed_offset"]) for one in others] == [(1, None), (2, None)]
        assert lag_series(kwire, group_id)["kwire_group_lag_offsets", topic, "0"] == 1
    finally:
        consumer.close()

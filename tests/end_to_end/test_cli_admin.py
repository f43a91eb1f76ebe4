"""kwire topic alter, add-partitions and trim; kwire config, quota and txn: the commands an administrator types."""

import json
import time
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.cli import Done, run_here
from tests.support.clients import Topics, produce_values, unique_name
from tests.support.hanging_transactions import leave_hanging
from tests.support.server import Broker
from tests.support.transactional_clients.with_confluent import ConfluentClients


def run(broker: Broker, *arguments: object) -> Done:
    return run_here(*arguments, "--bootstrap-server", broker.bootstrap)


def done(broker: Broker, *arguments: object) -> Any:
    found = run(broker, *arguments, "-o", "json")
    assert (found.code, found.errors) == (0, ""), found
    return json.loads(found.out)


def refused(broker: Broker, *arguments: object) -> str:
    found = run(broker, *arguments)
    assert found.code == 1, found
    return found.errors


def bounds(broker: Broker, topic: str) -> list[tuple[int, int]]:
    return [(row["first"], row["end"]) for row in done(broker, "topic", "describe", topic)["partitions"]]


def own_settings(broker: Broker, resource: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in done(broker, "config", "list", resource)}


# --- topic


def test_settings_of_topics_are_set_and_deleted(broker: Broker, topics: Topics) -> None:
    first, second = topics.create("alter"), topics.create("alter")
    settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact")
    assert done(broker, "topic", "alter", first, second, *settings) == {"altered": [first, second]}
    assert own_settings(broker, f"topic={second}") == {"cleanup.policy": "compact", "retention.ms": "3600000"}
    done(broker, "topic", "alter", first, "--delete-config", "retention.ms", "--config", "cleanup.policy=delete")
    assert own_settings(broker, f"topic={first}") == {"cleanup.policy": "delete"}
    wide = run(broker, "topic", "describe", first, "-o", "wide").out
    assert "retention.ms" in wide, "all settings are shown"
    assert "retention.ms" not in run(broker, "topic", "describe", first).out


def test_a_topic_that_cannot_be_altered_does_not_hold_up_the_others(broker: Broker, topics: Topics) -> None:
    topic, missing = topics.create("alter"), unique_name("missing")
    found = run(broker, "topic", "alter", missing, topic, "--config", "retention.ms=1000")
    assert (found.code, found.out) == (1, f"altered {topic}\n")
    assert missing in found.errors
    assert "retention.ms" in refused(broker, "topic", "alter", topic, "--config", "retention.ms=soon")
    assert run(broker, "topic", "alter", topic).code == 2
    assert run(broker, "topic", "alter", topic, "--config", "retention.ms").code == 2
    assert run(broker, "topic", "alter", topic, "--config", "a=b", "--delete-config", "a").code == 2


def test_partitions_are_added(broker: Broker, topics: Topics) -> None:
    topic, missing = topics.create("partitions"), unique_name("missing")
    found = run(broker, "topic", "add-partitions", missing, topic, "--partitions", "3")
    assert (found.code, found.out) == (1, f"altered {topic}\n")
    assert len(bounds(broker, topic)) == 3
    assert topic in refused(broker, "topic", "add-partitions", topic, "--partitions", "2")
    assert run(broker, "topic", "add-partitions", topic, "--partitions", "0").code == 2


def test_records_are_deleted_before_an_offset_and_before_a_time(broker: Broker, topics: Topics) -> None:
    topic = topics.create("trim", partitions=2)
    produce_values(broker.bootstrap, topic, [b"a", b"b", b"c"], partition=1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for age_s in (7200, 3600, 60):
        at_ms = int((time.time() - age_s) * 1000)
        producer.send(topic, b"x", partition=0, timestamp_ms=at_ms).get(30)
    producer.close()
    assert run(broker, "topic", "trim", topic, "--before", "1").code == 2, "nobody can answer"
    assert bounds(broker, topic) == [(0, 3), (0, 3)]
    rows = done(broker, "topic", "trim", topic, "--before", "2", "--partition", "1", "--yes")
    assert rows == [{"topic": topic, "partition": 1, "before": 0, "first": 2, "end": 3}]
    done(broker, "topic", "trim", topic, "--before", "30m", "--partition", "0", "--yes")
    assert bounds(broker, topic) == [(2, 3), (2, 3)]
    done(broker, "topic", "trim", topic, "--before", "1", "--yes")
    assert bounds(broker, topic) == [(2, 3), (2, 3)], "the first offset never falls"
    done(broker, "topic", "trim", topic, "--before", "100", "--yes")
    assert bounds(broker, topic) == [(3, 3), (3, 3)]
    assert "no partition 7" in refused(broker, "topic", "trim", topic, "--before", "1", "--partition", "7", "--yes")
    assert run(broker, "topic", "trim", topic, "--before", "soon", "--yes").code == 2


# --- config


def test_settings_are_described_with_source_default_and_documentation(broker: Broker, topics: Topics) -> None:
    topic = topics.create("config", configs={"max.message.bytes": "2000000"})
    described = done(broker, "config", "describe", f"topic={topic}", "--config", "max.message.bytes")
    (setting,) = described["settings"]
    assert (setting["value"], setting["source"], setting["type"]) == ("2000000", "topic", "int")
    assert setting["documentation"]
    assert not setting["read_only"]
    text = run(broker, "config", "describe", f"topic={topic}", "--config", "max.message.bytes").out
    assert text.startswith("max.message.bytes=2000000\n  source: topic\n")
    assert "no setting nonsense" in refused(broker, "config", "describe", f"topic={topic}", "--config", "nonsense")
    (node,) = {row["resource"] for row in done(broker, "config", "list", "broker")} - {"broker"}
    names = {row["name"]: row for row in done(broker, "config", "describe", node)["settings"]}
    assert names["log.dirs"]["read_only"]
    missing = unique_name("missing")
    found = run(broker, "config", "describe", f"topic={missing}", f"topic={topic}")
    assert found.code == 1
    assert missing in found.errors
    assert "max.message.bytes" in found.out


def test_settings_are_set_checked_and_deleted(broker: Broker, topics: Topics) -> None:
    topic, missing = topics.create("config"), unique_name("missing")
    change = ("--config", "segment.bytes=2000000")
    assert done(broker, "config", "set", f"topic={topic}", *change, "--check") == {"valid": [f"topic={topic}"]}
    assert own_settings(broker, f"topic={topic}") == {}
    found = run(broker, "config", "set", f"topic={missing}", f"topic={topic}", *change)
    assert (found.code, found.out) == (1, f"altered topic={topic}\n")
    assert own_settings(broker, f"topic={topic}") == {"segment.bytes": "2000000"}
    delete = ("config", "delete", f"topic={topic}", "--config", "segment.bytes")
    assert run(broker, *delete).code == 2, "nobody can answer"
    assert done(broker, *delete, "--yes") == {"altered": [f"topic={topic}"]}
    assert own_settings(broker, f"topic={topic}") == {}
    assert "has no value of its own for segment.bytes" in refused(broker, *delete, "--yes")


def test_settings_of_all_brokers_are_set_and_deleted(broker: Broker) -> None:
    change = ("--config", "log.cleaner.backoff.ms=14999")
    done(broker, "config", "set", "broker", *change)
    assert own_settings(broker, "broker")["log.cleaner.backoff.ms"] == "14999"
    done(broker, "config", "delete", "broker", "--config", "log.cleaner.backoff.ms", "--yes")
    assert "log.cleaner.backoff.ms" not in own_settings(broker, "broker")


@pytest.mark.parametrize("resource", ["orders", "topic=", "broker=one", "cluster=x", "=x"])
def test_what_is_not_a_resource_is_refused(broker: Broker, resource: str) -> None:
    found = run(broker, "config", "set", resource, "--config", "a=b")
    assert found.code == 2
    assert "not" in found.errors


# --- quota


def test_quotas_are_set_listed_and_deleted(broker: Broker) -> None:
    user, client = unique_name("alice"), unique_name("app")
    entities = (f"user={user}", f"client-id={client}", f"user={user},client-id={client}", f"user={user},client-id")
    values = ("--config", "producer_byte_rate=1000", "--config", "request_percentage=12.5")
    assert sorted(done(broker, "quota", "set", *entities, *values)["altered"]) == sorted(entities)
    listed = done(broker, "quota", "list", f"user={user},client-id")
    assert [(row["entity"], row["name"], row["value"]) for row in listed] == [
        (f"user={user},client-id", "producer_byte_rate", 1000),
        (f"user={user},client-id", "request_percentage", 12.5),
    ]
    assert {row["entity"] for row in done(broker, "quota", "list")} >= set(entities)
    done(broker, "quota", "delete", f"user={user}", "--config", "producer_byte_rate", "--yes")
    assert [row["name"] for row in done(broker, "quota", "list", f"user={user}")] == ["request_percentage"]
    found = run(broker, "quota", "delete", unique_name("user=nobody"), *entities, "--yes")
    assert found.code == 1
    assert "has no quota" in found.errors
    assert not {row["entity"] for row in done(broker, "quota", "list")} & set(entities)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nobody", "--config", "producer_byte_rate=1"), 2),
        (("ip=127.0.0.1,client-id=x", "--config", "producer_byte_rate=1"), 2),
        (("user=x", "--config", "producer_byte_rate=fast"), 2),
        (("user=x", "--config", "producer_byte_rate=-1"), 2),
        (("user=x", "--config", "nonsense=1"), 1),
        (("ip=127.0.0.1", "--config", "producer_byte_rate=1"), 1),
    ],
)
def test_quotas_that_make_no_sense_are_refused(broker: Broker, arguments: tuple[str, ...], code: int) -> None:
    found = run(broker, "quota", "set", *arguments)
    assert (found.code, found.out) == (code, "")
    assert found.errors.startswith("kwire: ")


# --- txn


def test_transactions_are_listed_described_and_terminated(broker: Broker, topics: Topics) -> None:
    topic, transactional_id, missing = topics.create("txn"), unique_name("txn"), unique_name("none")
    clients = ConfluentClients(broker.bootstrap)
    try:
        producer = clients.producer(transactional_id)
        producer.begin()
        producer.send(topic, "open")
        producer.flush()
        ongoing = done(broker, "txn", "list", "--state", "Ongoing", "--pattern", f"{transactional_id}.*")
        assert [(row["id"], row["state"]) for row in ongoing] == [(transactional_id, "Ongoing")]
        facts = done(broker, "txn", "describe", transactional_id)
        assert (facts["state"], facts["partitions"]) == ("Ongoing", [f"{topic}-0"])
        found = run(broker, "txn", "describe", missing, transactional_id)
        assert (found.code, found.errors) == (1, f"kwire: transactional id {missing} does not exist\n")
        assert found.out.startswith(f"{transactional_id}  Ongoing\n")
        (row,) = done(broker, "txn", "producers", topic)
        assert (row["producer_id"], row["start_offset"]) == (facts["producer_id"], 0)
        assert done(broker, "txn", "find-hanging", "--topic", topic, "--longer-than", "0s") == []

        found = run(broker, "txn", "terminate", missing, transactional_id, "--yes")
        assert (found.code, found.out) == (1, f"terminated {transactional_id}\n")
        (row,) = done(broker, "txn", "producers", f"{topic}:0")
        assert row["start_offset"] is None
        assert done(broker, "txn", "describe", transactional_id)["partitions"] == []
    finally:
        clients.close()
    assert run(broker, "txn", "list", "--state", "Sleeping").code == 2
    assert run(broker, "txn", "list", "--longer-than", "long").code == 2


def test_a_hanging_transaction_is_found_and_aborted(broker: Broker, topics: Topics) -> None:
    topic = topics.create("txn-hanging")
    producer_id, offset = leave_hanging(broker, topic)
    search = ("txn", "find-hanging", "--topic", topic)
    (row,) = done(broker, *search, "--longer-than", "0s")
    assert (row["producer_id"], row["start_offset"], row["partition"]) == (producer_id, offset, 0)
    assert done(broker, *search) == [], "it is too young"
    abort = ("txn", "abort", f"{topic}:0", "--start-offset", offset)
    assert run(broker, *abort).code == 2, "nobody can answer"
    assert done(broker, *abort, "--yes")["producer_id"] == producer_id
    assert done(broker, *search, "--longer-than", "0s") == []
    assert f"no open transaction that begins at offset {offset}" in refused(broker, *abort, "--yes")
    assert run(broker, "txn", "abort", topic, "--start-offset", offset, "--yes").code == 2

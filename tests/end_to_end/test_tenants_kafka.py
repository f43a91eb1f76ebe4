"""Two tenants use the same names of topics, groups and transactional ids at the same time, with real clients."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.support.clients import poll_records
from tests.support.java import JavaTools
from tests.support.scopes import A, B
from tests.support.server import wait_until
from tests.support.tenant_server import TENANTS, TenantServer, running_tenant_server

# One worker runs all tests of the tools, in one JVM.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("kafka-tools")]

DEADLINE_S = 30.0
COUNT = 50
USERS = tuple(TENANTS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    with running_tenant_server(tmp_path_factory.mktemp("tenants")) as started:
        yield started


def values_of(user: str) -> set[bytes]:
    return {f"{user}-{number}".encode() for number in range(COUNT)}


def for_both(call: Any) -> list[Any]:
    """The results of both tenants, who act at the same time."""
    with ThreadPoolExecutor(len(USERS)) as pool:
        return list(pool.map(call, USERS, timeout=4 * DEADLINE_S))


def consumed(server: TenantServer, user: str, topics: list[str], **options: Any) -> set[bytes]:
    """The values that a consumer of the group `readers` gets."""
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed", **options}
    consumer = Consumer({**server.confluent(user), **settings})
    found: set[bytes] = set()
    try:
        consumer.subscribe(topics)

        def has_all() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.add(message.value())
            return len(found) >= COUNT

        wait_until(has_all, "all records", timeout_s=DEADLINE_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_transactions_and_groups_of_confluent_kafka(server: TenantServer) -> None:
    def use(user: str) -> set[bytes]:
        producer = Producer(server.confluent(user, transactional_id="writer"))
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for value in values_of(user):
            producer.produce("orders", value)
        producer.commit_transaction(DEADLINE_S)
        # Nobody else uses the transactional id of this tenant, so the producer is not fenced.
        producer.begin_transaction()
        producer.produce("orders", b"aborted")
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)
        return consumed(server, user, ["orders"])

    assert for_both(use) == [values_of(user) for user in USERS]
    for user in USERS:
        admin = AdminClient(server.confluent(user))
        topics = set(admin.list_topics(timeout=DEADLINE_S).topics)
        assert "orders" in topics
        assert not any("kws-" in name or name.startswith("__") for name in topics)
        groups = admin.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S).valid
        ids = [group.group_id for group in groups]
        assert ids.count("readers") == 1
        assert not any("kws-" in one for one in ids)
    full = set(AdminClient({"bootstrap.servers": server.open}).list_topics(timeout=DEADLINE_S).topics)
    assert {A.full_name("orders"), B.full_name("orders")} < full
    assert "orders" not in full


def test_consumer_protocol_with_a_regular_expression(server: TenantServer) -> None:
    def use(user: str) -> set[bytes]:
        topic = f"rx-{'ab'[USERS.index(user)]}"
        admin = AdminClient(server.confluent(user))
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(DEADLINE_S)
        producer = Producer(server.confluent(user))
        for value in values_of(user):
            producer.produce(topic, value)
        assert producer.flush(DEADLINE_S) == 0
        return consumed(server, user, ["^rx-.*"], **{"group.id": "by-regex", "group.protocol": "consumer"})

    assert for_both(use) == [values_of(user) for user in USERS]


def test_kafka_python(server: TenantServer) -> None:
    def use(user: str) -> set[bytes]:
        producer = KafkaProducer(**server.keywords(user))
        for value in values_of(user):
            producer.send("letters", value).get(DEADLINE_S)
        producer.close()
        consumer = KafkaConsumer("letters", group_id="python", auto_offset_reset="earliest", **server.keywords(user))
        try:
            found = {one.value for one in poll_records(consumer, COUNT)}
            consumer.commit()
            assert consumer.topics() >= {"letters"}
            assert not any("kws-" in name for name in consumer.topics())
        finally:
            consumer.close()
        return found

    assert for_both(use) == [values_of(user) for user in USERS]


def test_names_that_do_not_fit(server: TenantServer) -> None:
    admin = AdminClient(server.confluent("alice"))
    created = admin.create_topics([NewTopic("n" * 233, 1, 1), NewTopic("n" * 234, 1, 1), NewTopic("__mine", 1, 1)])
    created["n" * 233].result(DEADLINE_S)
    for name in ("n" * 234, "__mine"):
        with pytest.raises(KafkaException) as refused:
            created[name].result(DEADLINE_S)
        error = refused.value.args[0]
        assert error.code() == KafkaError.TOPIC_EXCEPTION
        assert A.prefix not in error.str()
        assert "233" in error.str() or "reserved" in error.str()


@pytest.mark.needs_java
def test_kafkas_tools(server: TenantServer, java: JavaTools, tmp_path: Path) -> None:
    for user in USERS:
        at = ("--bootstrap-server", server.bootstrap, "--command-config", server.properties(tmp_path, user))
        java.run("TopicCommand", *at, "--create", "--topic", "tools", "--partitions", "2")
        java.run(
            "ConsoleProducer",
            "--bootstrap-server",
            server.bootstrap,
            "--command-config",
            at[-1],
            "--topic",
            "tools",
            stdin=f"from {user}\n",
        )
        read = java.run(
            "consumer.ConsoleConsumer",
            "--bootstrap-server",
            server.bootstrap,
            "--command-config",
            at[-1],
            "--topic",
            "tools",
            "--group",
            "tool-readers",
            "--from-beginning",
            "--max-messages",
            "1",
        )
        assert read.strip() == f"from {user}"
        topics = java.run("TopicCommand", *at, "--list").split()
        assert "tools" in topics
        assert not any("kws-" in name for name in topics)
        described = java.run("TopicCommand", *at, "--describe", "--topic", "tools")
        assert "PartitionCount: 2" in described
        assert "kws-" not in described
        changed = java.run(
            "kafka.admin.ConfigCommand", *at, "--alter", "--topic", "tools", "--add-config", "retention.ms=60000"
        )
        assert "kws-" not in changed
        groups = java.run("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", "tool-readers")
        assert "tools" in groups
        assert "kws-" not in groups
        assert "tool-readers" in java.run("consumer.group.ConsumerGroupCommand", *at, "--list").split()
    full = java.run("TopicCommand", "--bootstrap-server", server.open, "--list").split()
    assert {A.full_name("tools"), B.full_name("tools")} <= set(full)

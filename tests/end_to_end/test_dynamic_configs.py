"""Settings changed while a server runs: by stock clients, with effect at once, and still there after a restart."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonType
from kafka.admin import KafkaAdminClient

from kwire.config import INT_MAX, ConfigSource
from tests.support.clients import DEADLINE_S, unique_name
from tests.support.server import KwireProcess, wait_until

NODE = "1"
PAYLOAD = b"x" * 5000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server whose own settings may change; each test changes another one."""
    process = KwireProcess(tmp_path_factory.mktemp("dynamic-configs"))
    process.restart()
    yield process
    process.kill()


def admin_of(process: KwireProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.bootstrap})


def change(admin: AdminClient, kind: ResourceType, name: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(kind, name, incremental_configs=list(entries))
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def setting(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def unset(name: str) -> ConfigEntry:
    return ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)


def told(admin: AdminClient, kind: ResourceType, name: str) -> Any:
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result(DEADLINE_S)


def error_of_produce(process: KwireProcess, topic: str) -> KafkaError | None:
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": process.bootstrap, "compression.type": "none"})
    producer.produce(topic, value=PAYLOAD, on_delivery=lambda error, _message: answers.append(error))
    assert producer.flush(DEADLINE_S) == 0
    (answer,) = answers
    return answer


def test_changed_broker_setting_acts_and_outlives_the_process(server: KwireProcess) -> None:
    admin = admin_of(server)
    topic = unique_name("limited")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    assert error_of_produce(server, topic) is None
    change(admin, ResourceType.BROKER, NODE, setting("message.max.bytes", "1000"))
    for _ in range(2):
        entry = told(admin_of(server), ResourceType.BROKER, NODE)["message.max.bytes"]
        assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
        assert not entry.is_read_only
        refusal = error_of_produce(server, topic)
        assert refusal is not None
        assert refusal.code() == KafkaError.MSG_SIZE_TOO_LARGE
        server.kill()
        server.restart()
    change(admin_of(server), ResourceType.BROKER, NODE, unset("message.max.bytes"))
    assert error_of_produce(server, topic) is None


def test_fewer_connections_are_let_in_at_once(server: KwireProcess) -> None:
    admin = admin_of(server)
    told(admin, ResourceType.BROKER, NODE)
    change(admin, ResourceType.BROKER, NODE, setting("max.connections.per.ip", "1"))
    with socket.create_connection(server.kafka_address, DEADLINE_S) as refused:
        refused.settimeout(DEADLINE_S)
        assert refused.recv(1) == b""
    # Who is in stays in.
    change(admin, ResourceType.BROKER, NODE, unset("max.connections.per.ip"))
    assert told(admin_of(server), ResourceType.BROKER, NODE)["max.connections.per.ip"].value == str(INT_MAX)


def test_setting_that_needs_a_restart_is_refused(server: KwireProcess) -> None:
    with pytest.raises(KafkaException) as refusal:
        change(admin_of(server), ResourceType.BROKER, NODE, setting("num.partitions", "3"))
    assert refusal.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "Cannot update these configs dynamically: [num.partitions]" in refusal.value.args[0].str()


def test_settings_of_a_group_are_kept_for_it(server: KwireProcess) -> None:
    group = unique_name("group")
    change(admin_of(server), ResourceType.GROUP, group, setting("consumer.session.timeout.ms", "50000"))
    server.kill()
    server.restart()
    entry = told(admin_of(server), ResourceType.GROUP, group)["consumer.session.timeout.ms"]
    assert (entry.value, entry.source) == ("50000", ConfigSource.GROUP_CONFIG)
    assert (
        told(admin_of(server), ResourceType.GROUP, unique_name("other"))["consumer.session.timeout.ms"].value == "45000"
    )


def test_kafka_python_changes_and_describes_a_broker(server: KwireProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        resource = PythonResource(PythonType.BROKER, NODE, configs={"log.retention.ms": "3600000"})
        admin.alter_configs([resource])

        def retention() -> Any:
            asked = PythonResource(PythonType.BROKER, NODE)
            return admin.describe_configs([asked], config_filter="all")["broker"][NODE]["log.retention.ms"]

        assert wait_until(retention, "the broker is described")["value"] == "3600000"
    finally:
        admin.close()

"""Broker settings of Kafka that kwire does not use, as stock clients see and change them on a running server."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kwire.config import ConfigSource
from tests.support.apache_kafka_configs import broker_settings
from tests.support.clients import DEADLINE_S
from tests.support.server import KwireProcess

NODE = "1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    given = {"sasl.kerberos.service.name": "kafka", "ssl.key.password": "hush"}
    process = KwireProcess(tmp_path_factory.mktemp("unused-settings"), settings=given)
    process.restart()
    yield process
    process.kill()


def admin_of(process: KwireProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.bootstrap})


def described(process: KwireProcess) -> Any:
    resource = ConfigResource(ResourceType.BROKER, NODE)
    admin = admin_of(process)
    return admin.describe_configs([resource])[resource].result(DEADLINE_S)


def change(process: KwireProcess, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, NODE, incremental_configs=[entry])
    admin = admin_of(process)
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def refusal(process: KwireProcess, name: str, value: str) -> str:
    with pytest.raises(KafkaException) as refused:
        change(process, name, value)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    return str(refused.value.args[0].str())


def test_all_settings_of_kafka_are_described(server: KwireProcess) -> None:
    entries = described(server)
    for kafka in broker_settings().values():
        assert entries[kafka.name].is_sensitive == kafka.is_sensitive
        assert kafka.name in {"listeners", "listener.security.protocol.map"} or (
            entries[kafka.name].is_read_only == (kafka.mode == "read-only")
        )
    given = entries["sasl.kerberos.service.name"]
    assert (given.value, given.source) == ("kafka", ConfigSource.STATIC_BROKER_CONFIG)
    assert entries["ssl.key.password"].value is None
    assert all(one.value is None for one in entries["ssl.key.password"].synonyms.values())
    assert entries["remote.log.reader.threads"].source == ConfigSource.DEFAULT_CONFIG


def test_recovery_threads_change_while_the_server_runs_and_outlive_it(server: KwireProcess) -> None:
    change(server, "num.recovery.threads.per.data.dir", "7")
    server.kill()
    server.restart()
    assert described(server)["num.recovery.threads.per.data.dir"].value == "7"


def test_a_secret_is_set_for_one_broker_and_never_shown(server: KwireProcess) -> None:
    secret = "com.example.Login required password=hush;"
    change(server, "sasl.jaas.config", secret)
    entry = described(server)["sasl.jaas.config"]
    assert (entry.value, entry.is_sensitive, entry.source) == (None, True, ConfigSource.DYNAMIC_BROKER_CONFIG)


def test_what_kafka_refuses_to_change_is_refused_with_its_words(server: KwireProcess) -> None:
    assert "Cannot update these configs dynamically: [metadata.log.dir]" in refusal(
        server, "metadata.log.dir", "/elsewhere"
    )
    assert "only per-listener using the listener prefix: [ssl.keystore.password]" in refusal(
        server, "ssl.keystore.password", "hush"
    )

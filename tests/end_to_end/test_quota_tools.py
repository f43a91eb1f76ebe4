"""kafka-configs, unchanged, sets, shows and removes quotas; confluent-kafka's producer is throttled by them."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.clients import DEADLINE_S
from tests.support.java import JavaTools
from tests.support.server import KwireProcess

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("kafka-tools")]

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    process = KwireProcess(tmp_path_factory.mktemp("quotas"))
    process.start()
    try:
        process.ready()
        yield process
        assert process.stop() == 0
    finally:
        process.kill()


def test_quotas_are_set_shown_and_removed(java: JavaTools, process: KwireProcess) -> None:
    server = ("--bootstrap-server", process.bootstrap)
    both = "producer_byte_rate=1024,consumer_byte_rate=2048"
    for entity, values, shown in (
        (("--entity-type", "users", "--entity-name", "alice"), both, "user-principal 'alice'"),
        (("--entity-type", "clients", "--entity-name", "app"), "request_percentage=12.5", "client-id 'app'"),
        (("--entity-type", "clients", "--entity-default"), "controller_mutation_rate=3", "default client-id"),
        (
            ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"),
            both,
            "user-principal 'alice', the default client-id",
        ),
        (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=7", "ip '127.0.0.9'"),
        (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=9", "default ip"),
    ):
        java.run(CONFIGS, *server, "--alter", "--add-config", values, *entity)
        told = java.run(CONFIGS, *server, "--describe", *entity)
        assert shown in told, told
        for value in values.split(","):
            name, _, number = value.partition("=")
            assert f"{name}={float(number)}" in told, told
        names = ",".join(one.partition("=")[0] for one in values.split(","))
        java.run(CONFIGS, *server, "--alter", "--delete-config", names, *entity)
        assert "=" not in java.run(CONFIGS, *server, "--describe", *entity)


def test_a_wrong_quota_is_refused(java: JavaTools, process: KwireProcess) -> None:
    server = ("--bootstrap-server", process.bootstrap)
    told = java.refused(
        CONFIGS,
        *server,
        "--alter",
        "--add-config",
        "producer_byte_rate=-5",
        "--entity-type",
        "users",
        "--entity-name",
        "x",
    )
    assert "must be greater than 0" in told


def test_a_stock_producer_is_throttled(java: JavaTools, process: KwireProcess) -> None:
    server = ("--bootstrap-server", process.bootstrap)
    entity = ("--entity-type", "clients", "--entity-name", "slow")
    java.run(CONFIGS, *server, "--alter", "--add-config", "producer_byte_rate=50000", *entity)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": process.bootstrap,
            "client.id": "slow",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
            "batch.size": 20_000,
        }
    )
    began = time.monotonic()
    for _ in range(60):
        producer.produce("throttled", bytes(10_000))
    assert producer.flush(DEADLINE_S) == 0
    # 600 kB at 50 kB/s, of which the first 500 kB are free.
    assert throttled
    assert 1 < time.monotonic() - began < DEADLINE_S

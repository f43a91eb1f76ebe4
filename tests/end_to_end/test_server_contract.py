"""The process itself: how it starts, where it tells clients to go, what it reads, how it stops, and what it keeps."""

import contextlib
import re
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

from kwire.testing import ServerFailed
from kwire.testing.ports import unused_port
from tests.support.clients import Topics, poll_records, produce_values, read_topic, read_values, unique_name
from tests.support.clients_raw import (
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    RawConnection,
    batch,
    fetch_request,
    metadata_request,
    produce_request,
    produced,
)
from tests.support.server import HOST, KwireProcess, wait_until

StartKwire = Callable[..., KwireProcess]

STOP_BOUND_S = 30.0
HTTP_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 40.0
SERVED_TIMEOUT_S = 40.0
# How long a connection that must not be served is observed.
WATCH_S = 1.0


def partitions_of_new_topic(process: KwireProcess) -> int:
    """How many partitions a topic gets that is created by being asked for."""
    name = unique_name("contract-auto")
    with RawConnection(process.kafka_address) as connection:

        def created() -> Any:
            topic = connection.call(metadata_request(name, allow_auto_create=True), 9).topics[0]
            return topic if topic.error_code == NONE else None

        return len(wait_until(created, "the topic was created").partitions)


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server with several settings that no other test needs."""
    settings = {
        "advertised.listeners": "PLAINTEXT://broker.example:19099",
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": "1000",
    }
    process = KwireProcess(tmp_path_factory.mktemp("unusual"), settings=settings)
    process.restart()
    yield process
    process.kill()


def test_the_ready_line_names_both_addresses(kwire: KwireProcess) -> None:
    assert kwire.ready_line == f"ready kafka={HOST}:{kwire.kafka_port} http={HOST}:{kwire.http_port}"


def test_ports_of_zero_are_chosen_by_the_server_and_named_in_the_ready_line(start_kwire: StartKwire) -> None:
    process = start_kwire(kafka_port=0, http_port=0)
    told = re.fullmatch(r"ready kafka=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)", process.ready_line)
    assert told is not None
    kafka_port, http_port = map(int, told.groups())
    assert 0 not in (kafka_port, http_port)
    assert kafka_port != http_port
    with RawConnection((HOST, kafka_port)) as connection:
        assert connection.call(metadata_request(), 9).brokers[0].port == kafka_port
    with urllib.request.urlopen(f"http://{HOST}:{http_port}/healthz", timeout=HTTP_TIMEOUT_S) as answer:
        assert answer.status == 200


def test_sigterm_ends_the_server_cleanly_with_clients_connected(killable: KwireProcess) -> None:
    process = killable
    topics = Topics(process.bootstrap)
    topic = topics.create("contract-stop")
    topics.close()
    produce_values(process.bootstrap, topic, [b"kept"])
    with RawConnection(process.kafka_address) as waiting, RawConnection(process.kafka_address) as idle:
        waiting.send(fetch_request(topic, 1, max_wait_ms=60_000), 12)
        idle.call(metadata_request(topic), 9)
        assert process.stop(STOP_BOUND_S) == 0
        assert idle.is_closed(CLOSE_TIMEOUT_S)
        assert waiting.is_closed(CLOSE_TIMEOUT_S)
    with pytest.raises(ConnectionRefusedError):
        RawConnection(process.kafka_address)
    process.restart()
    assert read_values(process.bootstrap, topic) == [b"kept"]


def test_a_second_server_on_the_same_data_is_refused(kwire: KwireProcess, tmp_path: Path) -> None:
    second = KwireProcess(tmp_path / "second", data_dir=kwire.data_dir)
    second.start()
    try:
        assert second.exit_code() != 0
    finally:
        second.kill()
    message = second.stderr_path.read_text()
    assert str(kwire.data_dir) in message
    assert "Traceback" not in message
    with RawConnection(kwire.kafka_address) as connection:
        assert connection.call(metadata_request(), 9).brokers


@pytest.mark.parametrize("refused", ["num.partitions=many", "num.partitions=0", "listeners=CARRIER_PIGEON"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, start_kwire: StartKwire, refused: str
) -> None:
    name, _, value = refused.partition("=")
    kafka_port = None if name == "listeners" else 0
    with pytest.raises(ServerFailed):
        start_kwire(settings={name: value}, kafka_port=kafka_port)
    message = (tmp_path / "kwire-0" / "stderr.log").read_text()
    assert name in message
    assert "Traceback" not in message


def test_a_port_in_use_is_refused_by_name(tmp_path: Path, start_kwire: StartKwire) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed):
            start_kwire(kafka_port=port)
    message = (tmp_path / "kwire-0" / "stderr.log").read_text()
    assert str(port) in message
    assert "Traceback" not in message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_clients_are_told_the_address_they_connected_to(kwire: KwireProcess, host: str) -> None:
    assert kwire.kafka_port
    with RawConnection((host, kwire.kafka_port)) as connection:
        connected_to = connection.socket.getpeername()[:2]
        for version in (1, 12):
            (node,) = connection.call(metadata_request(), version).brokers
            assert (node.host, node.port) == connected_to
    admin = KafkaAdminClient(bootstrap_servers=f"{host}:{kwire.kafka_port}")
    try:
        assert admin.describe_cluster()["brokers"][0]["port"] == kwire.kafka_port
    finally:
        admin.close()


def test_advertised_listeners_are_what_clients_are_told(unusual: KwireProcess) -> None:
    with RawConnection(unusual.kafka_address) as connection:
        (node,) = connection.call(metadata_request(), 12).brokers
        assert (node.host, node.port) == ("broker.example", 19099)


def test_a_properties_file_is_all_the_server_needs(start_kwire: StartKwire, tmp_path: Path) -> None:
    port = unused_port()
    data_dir = tmp_path / "from-file"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"# a comment\nlisteners = PLAINTEXT://127.0.0.1:{port}\nlog.dirs={data_dir}\n"
        "num.partitions: 3\ngroup.initial.rebalance.delay.ms=0\n"
    )
    process = start_kwire(kafka_port=None, names_data_dir=False, arguments=["--config", str(properties)])
    assert process.kafka_port == port
    assert data_dir.is_dir()
    assert partitions_of_new_topic(process) == 3


def test_environment_wins_over_the_file_and_flags_over_both(start_kwire: StartKwire, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=2\n")
    arguments = ["--config", str(properties)]
    env = {"KAFKA_NUM_PARTITIONS": "4"}
    assert partitions_of_new_topic(start_kwire(arguments=arguments)) == 2
    assert partitions_of_new_topic(start_kwire(arguments=arguments, env=env)) == 4
    assert partitions_of_new_topic(start_kwire(arguments=arguments, env=env, settings={"num.partitions": "5"})) == 5


def test_topics_are_not_created_by_being_asked_for_when_that_is_off(unusual: KwireProcess) -> None:
    name = unique_name("contract-never")
    with RawConnection(unusual.kafka_address) as connection:
        for _ in range(3):
            (topic,) = connection.call(metadata_request(name, allow_auto_create=True), 9).topics
            assert topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert produced(connection.call(produce_request(name, batch(b"x")), 9)).error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert connection.call(metadata_request(), 9).topics == []


def test_topic_ids_stay_over_restarts_and_change_with_a_new_topic(killable: KwireProcess) -> None:
    process = killable
    topics = Topics(process.bootstrap)
    topic = topics.create("contract-id")

    def topic_id() -> Any:
        with RawConnection(process.kafka_address) as connection:
            (found,) = connection.call(metadata_request(topic), 12).topics
            return found.topic_id if found.error_code == NONE else None

    first = topic_id()
    assert first.int != 0
    topics.close()
    assert process.stop() == 0
    process.restart()
    assert wait_until(topic_id, "the topic is back") == first
    process.kill()
    process.restart()
    assert wait_until(topic_id, "the topic is back") == first

    produce_values(process.bootstrap, topic, [b"of the old topic"])
    topics = Topics(process.bootstrap)
    topics.admin.delete_topics([topic])
    wait_until(lambda: topic_id() is None, "the topic is gone")
    topics.admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    topics.close()
    assert topic_id() not in (None, first)
    assert read_values(process.bootstrap, topic) == []


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_records_offsets_and_commits(killable: KwireProcess, ending: str) -> None:
    process = killable
    topics = Topics(process.bootstrap)
    topic = topics.create("contract-restart", partitions=2, configs={"retention.ms": "86400000"})
    topics.close()
    group = unique_name("contract-restart")
    for partition in (0, 1):
        produce_values(process.bootstrap, topic, [f"{partition}-{n}".encode() for n in range(10)], partition=partition)
    options: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(topic, bootstrap_servers=process.bootstrap, **options)
    poll_records(consumer, 20)
    marks = {
        TopicPartition(topic, 0): OffsetAndMetadata(4, "four", -1),
        TopicPartition(topic, 1): OffsetAndMetadata(7, "", -1),
    }
    consumer.commit(marks)
    consumer.close(autocommit=False)

    if ending == "stop":
        assert process.stop() == 0
    else:
        process.kill()
    process.restart()

    found = read_topic(process.bootstrap, topic)
    assert {partition: [record.value for record in records] for partition, records in found.items()} == {
        partition: [f"{partition}-{n}".encode() for n in range(10)] for partition in (0, 1)
    }
    consumer = KafkaConsumer(topic, bootstrap_servers=process.bootstrap, **options)
    try:
        records = poll_records(consumer, 9)
        assert sorted((record.partition, record.offset) for record in records) == [
            *((0, offset) for offset in range(4, 10)),
            *((1, offset) for offset in range(7, 10)),
        ]
        assert consumer.committed(TopicPartition(topic, 0), metadata=True).metadata == "four"
    finally:
        consumer.close(autocommit=False)
    produce_values(process.bootstrap, topic, [b"after"])
    assert read_topic(process.bootstrap, topic)[0][-1].offset == 10


def test_an_idle_connection_is_closed(unusual: KwireProcess) -> None:
    with RawConnection(unusual.kafka_address) as idle:
        idle.call(metadata_request(), 9)
        started = time.monotonic()
        assert idle.is_closed(CLOSE_TIMEOUT_S)
        assert time.monotonic() - started >= 0.5


def test_connections_beyond_the_bound_are_not_served(start_kwire: StartKwire) -> None:
    process = start_kwire(settings={"max.connections": "5"})

    def is_served(connection: RawConnection, timeout_s: float) -> bool:
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.send(metadata_request(), 9)
            return bool(connection.receive(timeout_s)[1].brokers)
        return False

    admitted = [RawConnection(process.kafka_address) for _ in range(5)]
    try:
        assert all(is_served(connection, SERVED_TIMEOUT_S) for connection in admitted)
        with RawConnection(process.kafka_address) as refused:
            assert not is_served(refused, WATCH_S)
        assert all(is_served(connection, SERVED_TIMEOUT_S) for connection in admitted)
        admitted.pop().close()

        def finds_room() -> bool:
            with RawConnection(process.kafka_address) as newcomer:
                return is_served(newcomer, WATCH_S)

        wait_until(finds_room, "the place of the one that left is given to another")
    finally:
        for connection in admitted:
            connection.close()

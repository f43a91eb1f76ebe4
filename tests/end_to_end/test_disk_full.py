"""A full disk refuses writes and nothing else; when there is room again, the server goes on by itself."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka.errors import KafkaStorageError

from tests.support.clients import Topics, produce_values, read_values, unique_name
from tests.support.clients_raw import NONE, RawConnection, batch, produce_request, produced
from tests.support.sent_ledger import SentLedger
from tests.support.server import wait_until
from tests.support.small_disk import SmallDisk, SmallDiskProcess

# kafka-python leaves sockets to the garbage collector.
pytestmark = [pytest.mark.needs_tmpfs, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

KAFKA_STORAGE_ERROR = 56
DISK_BYTES = 24 << 20
BALLAST_BYTES = 12 << 20
# Small steps, so that the disk is full to the brim.
TOPIC_CONFIGS = {"segment.bytes": str(1 << 20)}
VALUE_BYTES = 20_000
SENDS_MAX = 5_000
REFUSALS = 20
TOPICS_MAX = 200
CYCLES = 3
# A disk that is full refuses for good; with room again the next request may already find it.
RESUME_TIMEOUT_S = 20.0
FULL_TIMEOUT_S = 60.0
PRODUCER_TIMEOUT_S = 60.0
PRODUCE_VERSION = 9


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def server(disk: SmallDisk, tmp_path: Path) -> Iterator[SmallDiskProcess]:
    process = SmallDiskProcess(tmp_path / "kwire", disk)
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()
        gc.collect()


def send(connection: RawConnection, topic: str, ledger: SentLedger) -> int:
    """One record; the error code of its answer."""
    value = ledger.next_value(0, VALUE_BYTES)
    answer = produced(connection.call(produce_request(topic, batch(value)), PRODUCE_VERSION))
    if answer.error_code == NONE:
        ledger.acknowledge(0, value, answer.base_offset)
    return int(answer.error_code)


def fill(connection: RawConnection, topic: str, ledger: SentLedger) -> None:
    for _ in range(SENDS_MAX):
        code = send(connection, topic, ledger)
        if code != NONE:
            assert code == KAFKA_STORAGE_ERROR
            return
    raise AssertionError("the disk did not fill up")


def test_a_full_disk_is_a_retriable_error_and_over_when_there_is_room(
    disk: SmallDisk, server: SmallDiskProcess
) -> None:
    topics = Topics(server.bootstrap)
    quiet, busy = topics.create("quiet"), topics.create("busy", configs=TOPIC_CONFIGS)
    produce_values(server.bootstrap, quiet, [b"a", b"b"])
    ledger = SentLedger(1)
    with RawConnection(server.kafka_address) as connection:
        for cycle in range(CYCLES):
            disk.put_ballast(BALLAST_BYTES >> cycle)
            fill(connection, busy, ledger)
            codes = {send(connection, busy, ledger) for _ in range(REFUSALS)}
            assert codes == {KAFKA_STORAGE_ERROR}
            assert server.is_running
            assert read_values(server.bootstrap, quiet) == [b"a", b"b"]
            assert {quiet, busy} <= set(topics.admin.list_topics())
            ledger.check_acknowledged(server.bootstrap, busy)

            disk.remove_ballast()
            started_at = time.monotonic()
            wait_until(lambda: send(connection, busy, ledger) == NONE, "appends work again", RESUME_TIMEOUT_S)
            print(
                f"full after {ledger.acknowledged_count} records, served again {time.monotonic() - started_at:.3f} s "
                "after there was room"
            )
    topics.close()
    ledger.check_acknowledged(server.bootstrap, busy)
    server.kill()
    server.restart()
    ledger.check_acknowledged(server.bootstrap, busy)


def test_a_server_killed_on_a_full_disk_starts_and_serves_what_it_has(
    disk: SmallDisk, server: SmallDiskProcess
) -> None:
    topics = Topics(server.bootstrap)
    busy = topics.create("busy", configs=TOPIC_CONFIGS)
    topics.close()
    ledger = SentLedger(1)
    disk.put_ballast(BALLAST_BYTES)
    with RawConnection(server.kafka_address) as connection:
        fill(connection, busy, ledger)
    server.kill()
    fill_the_rest(disk.outside / "crumbs")
    print(f"restart on a full disk: ready after {server.restart():.3f} s")
    ledger.check_acknowledged(server.bootstrap, busy)
    disk.remove_ballast()
    with RawConnection(server.kafka_address) as connection:
        wait_until(lambda: send(connection, busy, ledger) == NONE, "appends work again", RESUME_TIMEOUT_S)
    ledger.check_acknowledged(server.bootstrap, busy)


def fill_the_rest(path: Path) -> None:
    """Leave not a single block."""
    with path.open("ab", buffering=0) as file:
        try:
            for _ in range(DISK_BYTES // 4096):
                file.write(bytes(4096))
        except OSError:
            return
    raise AssertionError("there is still room")


def test_topics_can_be_made_again_after_the_disk_was_full(disk: SmallDisk, server: SmallDiskProcess) -> None:
    topics = Topics(server.bootstrap)
    made = {topics.create("before")}
    disk.put_ballast(1)
    fill_the_rest(disk.outside / "ballast")
    # The last block of the catalogue still has room for some.
    for _ in range(TOPICS_MAX):
        name = unique_name("t" * 200)
        try:
            topics.admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
        except KafkaStorageError:
            break
        made.add(name)
    else:
        raise AssertionError("the disk did not fill up")
    assert server.is_running
    assert set(topics.admin.list_topics()) == made
    disk.remove_ballast()
    made.add(topics.create("after"))
    assert set(topics.admin.list_topics()) == made
    topics.close()
    server.kill()
    server.restart()
    topics = Topics(server.bootstrap)
    assert set(topics.admin.list_topics()) == made
    topics.close()


@pytest.mark.timeout(200)
def test_an_idempotent_producer_comes_through_full_disks_without_loss(
    disk: SmallDisk, server: SmallDiskProcess
) -> None:
    topics = Topics(server.bootstrap)
    topic, other = topics.create("full", configs=TOPIC_CONFIGS), topics.create("other", configs=TOPIC_CONFIGS)
    topics.close()
    ledger = SentLedger(1)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 300_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            ledger.fail(error)
            return
        value, offset = message.value(), message.offset()
        assert isinstance(value, bytes)
        assert offset is not None
        ledger.acknowledge(0, value, offset)

    done = threading.Event()
    allowance = threading.Semaphore(0)

    def produce() -> None:
        while not done.is_set():
            if allowance.acquire(blocking=False):
                producer.produce(topic, value=ledger.next_value(0, VALUE_BYTES), partition=0, on_delivery=delivered)
            producer.poll(0.0005)

    disk.put_ballast(BALLAST_BYTES)
    feeding = threading.Thread(target=produce, daemon=True)
    feeding.start()
    try:
        # More than fits beside the ballast, less than fits without it.
        allowance.release((DISK_BYTES - BALLAST_BYTES) // VALUE_BYTES + 100)
        with RawConnection(server.kafka_address) as connection:
            wait_until(
                lambda: send(connection, other, SentLedger(1)) == KAFKA_STORAGE_ERROR,
                "the disk is full",
                FULL_TIMEOUT_S,
            )
        assert ledger.failures == []
        assert ledger.acknowledged_count < ledger.sent_count
        disk.remove_ballast()
        wait_until(
            lambda: ledger.acknowledged_count == ledger.sent_count or ledger.failures,
            "everything is acknowledged",
            PRODUCER_TIMEOUT_S,
        )
    finally:
        done.set()
        feeding.join(PRODUCER_TIMEOUT_S)
    assert producer.flush(PRODUCER_TIMEOUT_S) == 0
    ledger.check_complete(server.bootstrap, topic)

"""On a completely full disk old records and topics can still be deleted, and then there is space again."""

import gc
import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaStorageError

from storage.data_directory.disk_reserve import RESERVE_NAME
from tests.support.clients import Topics, unique_name
from tests.support.clients_raw import (
    EARLIEST,
    NONE,
    RawConnection,
    batch,
    list_offsets_request,
    produce_request,
    produced,
)
from tests.support.server import wait_until
from tests.support.small_disk import SmallDisk, SmallDiskProcess

# kafka-python leaves sockets to the garbage collector.
pytestmark = [pytest.mark.needs_tmpfs, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

KAFKA_STORAGE_ERROR = 56
DISK_BYTES = 24 << 20
RESERVE_BYTES = 4 << 20
BALLAST_BYTES = 12 << 20
BLOCK_BYTES = 4096
VALUE_BYTES = 100_000
SENDS_MAX = 2_000
TOPICS_MAX = 300
PRODUCE_VERSION = 9
LIST_OFFSETS_VERSION = 5
# The disk is filled within a fraction of this; one round of retention more or less makes no difference.
CHECK_INTERVAL_MS = 3_000
KEPT_BYTES = 2 << 20
SEGMENTS = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"}


@contextmanager
def running(tmp_path: Path, reserve_bytes: int) -> Iterator[tuple[SmallDisk, SmallDiskProcess]]:
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    process = SmallDiskProcess(tmp_path / "kwire", disk)
    process.settings["log.retention.check.interval.ms"] = str(CHECK_INTERVAL_MS)
    process.settings["kwire.log.reserve.bytes"] = str(reserve_bytes)
    try:
        process.start()
        process.ready()
        yield disk, process
    finally:
        process.kill()
        disk.close()
        gc.collect()


def send(connection: RawConnection, topic: str) -> int:
    return int(produced(connection.call(produce_request(topic, batch(bytes(VALUE_BYTES))), PRODUCE_VERSION)).error_code)


def fill(connection: RawConnection, topic: str, disk: SmallDisk) -> None:
    """Until not a single block is left."""
    disk.put_ballast(BALLAST_BYTES)
    for _ in range(SENDS_MAX):
        if send(connection, topic) != NONE:
            break
    else:
        raise AssertionError("the disk did not fill up")
    fill_the_rest(disk)


def fill_the_rest(disk: SmallDisk) -> None:
    with (disk.outside / "ballast").open("ab", buffering=0) as file:
        try:
            for _ in range(DISK_BYTES // BLOCK_BYTES):
                file.write(bytes(BLOCK_BYTES))
        except OSError:
            return
    raise AssertionError("there is still room")


def earliest(connection: RawConnection, topic: str) -> int:
    answer = connection.call(list_offsets_request(topic, EARLIEST), LIST_OFFSETS_VERSION)
    return int(answer.topics[0].partitions[0].offset)


def metric(server: SmallDiskProcess, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    (value,) = (float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
    return value


def reserve_bytes(disk: SmallDisk) -> int:
    found: int = (disk.outside / "data" / RESERVE_NAME).stat().st_blocks * 512
    return found


def free_bytes(disk: SmallDisk) -> int:
    facts = os.statvfs(disk.outside)
    return facts.f_bavail * facts.f_frsize


def test_retention_works_on_a_full_disk(tmp_path: Path) -> None:
    with running(tmp_path, RESERVE_BYTES) as (disk, server):
        topics = Topics(server.bootstrap)
        topic = topics.create("busy", configs={**SEGMENTS, "retention.bytes": str(KEPT_BYTES)})
        topics.close()
        assert reserve_bytes(disk) == RESERVE_BYTES
        with RawConnection(server.kafka_address) as connection:
            fill(connection, topic, disk)
            assert send(connection, topic) == KAFKA_STORAGE_ERROR
            before = earliest(connection, topic)
            wait_until(lambda: earliest(connection, topic) > before, "retention has let records go")
            wait_until(lambda: send(connection, topic) == NONE, "there is space again")
        disk.remove_ballast()
        wait_until(lambda: reserve_bytes(disk) == RESERVE_BYTES, "the reserve is taken again")
        assert metric(server, "kwire_storage_reserve_bytes") == RESERVE_BYTES
        server.kill()
        server.restart()
        with RawConnection(server.kafka_address) as connection:
            assert earliest(connection, topic) > before


def test_records_and_topics_can_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    with running(tmp_path, RESERVE_BYTES) as (disk, server):
        topics = Topics(server.bootstrap)
        first, second = topics.create("first", configs=SEGMENTS), topics.create("second", configs=SEGMENTS)
        with RawConnection(server.kafka_address) as connection:
            assert [send(connection, second) for _ in range(5)] == [NONE] * 5
            fill(connection, first, disk)
            topics.admin.delete_records({TopicPartition(second, 0): 3})
            assert earliest(connection, second) == 3
        # What was given up for it goes to somebody else.
        fill_the_rest(disk)
        fill_the_catalogue(topics)
        topics.admin.delete_topics([first])
        assert first not in topics.admin.list_topics()
        wait_until(lambda: free_bytes(disk) > RESERVE_BYTES, "the files of the topic are gone")
        topics.close()
        assert not [path for path in (disk.outside / "data").iterdir() if path.name.startswith(first)]


def fill_the_catalogue(topics: Topics) -> None:
    """Its last block has room for some changes."""
    for _ in range(TOPICS_MAX):
        try:
            create(topics.admin, unique_name("t" * 200))
        except KafkaStorageError:
            return
    raise AssertionError("the catalogue takes more and more")


def create(admin: Any, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})


def test_the_log_start_stays_where_it_is_until_the_disk_takes_the_new_one(tmp_path: Path) -> None:
    with running(tmp_path, reserve_bytes=0) as (disk, server):
        topics = Topics(server.bootstrap)
        topic = topics.create("busy", configs={**SEGMENTS, "retention.bytes": str(KEPT_BYTES)})
        topics.close()
        with RawConnection(server.kafka_address) as connection:
            fill(connection, topic, disk)
            before = earliest(connection, topic)
            wait_until(lambda: metric(server, "kwire_retention_failures_total") > 0, "retention has failed")
            assert earliest(connection, topic) == before
            reported = f"old records of {topic}-0 could not be deleted, the next try is in 5 s"
            assert reported in server.stderr_path.read_text()
            disk.remove_ballast()
            wait_until(lambda: earliest(connection, topic) > before, "retention has let records go")

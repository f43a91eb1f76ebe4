"""The event loop does not wait for the disk: other clients are served while a request waits for it."""

import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest

from tests.support.clients import Topics, unique_name
from tests.support.clients_raw import (
    EARLIEST,
    LATEST,
    NONE,
    RawConnection,
    batch,
    list_offsets_request,
    metadata_request,
    produce_request,
    produced,
)
from tests.support.server import wait_until
from tests.support.slow_disk import SlowDiskProcess

SYNC_SECONDS = 1.0
# Far from what a sync takes, and from what a busy machine makes of a loop that does not wait.
STALL_SECONDS_MAX = 0.5
DISK_SECONDS = 1.0
# On a busy machine something other than the disk may stop the loop for a moment; the disk would do so in each round.
ROUNDS_MAX = 3
PRODUCE_VERSION = 9
CREATE_TOPICS_VERSION = 4
DELETE_TOPICS_VERSION = 3
LIST_OFFSETS_VERSION = 4
METADATA_VERSION = 8
ANSWER_TIMEOUT_S = 60.0
SEGMENT_BYTES = 1024 * 1024
VALUE = bytes(200_000)
VALUE_COUNT = 16


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowDiskProcess]:
    process = SlowDiskProcess(tmp_path / "kwire", settings={"log.retention.check.interval.ms": "500"})
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()


def metrics(server: SlowDiskProcess) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}


def longest_stall(server: SlowDiskProcess) -> float:
    return metrics(server)["kwire_loop_stall_seconds_max"]


def test_a_topic_deleted_right_after_its_first_record_does_not_stop_the_loop(server: SlowDiskProcess) -> None:
    topics = Topics(server.bootstrap)
    topic = topics.create("short")
    topics.close()
    assert longest_stall(server) < STALL_SECONDS_MAX
    with RawConnection(server.kafka_address) as producing, RawConnection(server.kafka_address) as deleting:
        server.slow_down(SYNC_SECONDS)
        # Its first checkpoint and its first sync are under way when the topic goes.
        producing.send(produce_request(topic, batch(b"value")), PRODUCE_VERSION)
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000)
        began = time.monotonic()
        deleting.send(request, DELETE_TOPICS_VERSION)
        _, answer = deleting.receive(ANSWER_TIMEOUT_S)
        print(f"deleted after {time.monotonic() - began:.1f} s, longest stall {longest_stall(server):.2f} s")
        assert answer.responses[0].error_code == NONE
        producing.receive(ANSWER_TIMEOUT_S)
    assert longest_stall(server) < STALL_SECONDS_MAX
    assert server.calls_on_the_loop() == []


def create(connection: RawConnection, *names: str) -> None:
    configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": "1", "file.delete.delay.ms": "0"}
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=1,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        for name in names
    ]
    connection.send(CreateTopicsRequest(topics=wanted, timeout_ms=60_000, validate_only=False), CREATE_TOPICS_VERSION)
    _, answer = connection.receive(ANSWER_TIMEOUT_S)
    assert [one.error_code for one in answer.topics] == [NONE] * len(names)


def work_on_a_slow_disk(server: SlowDiskProcess) -> None:
    """Topics are created, written to until they roll, retained and deleted, each while the others are under way."""
    kept, deleted = unique_name("kept"), unique_name("deleted")
    addresses = [server.kafka_address] * 3
    with (
        RawConnection(addresses[0]) as admin,
        RawConnection(addresses[1]) as first,
        RawConnection(addresses[2]) as second,
    ):
        create(admin, kept, deleted)
        for connection, topic in ((first, kept), (second, deleted)):
            for number in range(VALUE_COUNT):
                request = produce_request(topic, batch(VALUE), partition=number % 2)
                connection.send(request, PRODUCE_VERSION)
        admin.send(metadata_request(kept), METADATA_VERSION)
        admin.receive(ANSWER_TIMEOUT_S)
        for _ in range(VALUE_COUNT):
            _, answer = first.receive(ANSWER_TIMEOUT_S)
            assert produced(answer).error_code == NONE
        # While records of the topic wait for the disk, and its segments are being sealed.
        admin.send(DeleteTopicsRequest(topic_names=[deleted], timeout_ms=60_000), DELETE_TOPICS_VERSION)
        _, answer = admin.receive(ANSWER_TIMEOUT_S)
        assert answer.responses[0].error_code == NONE
        for _ in range(VALUE_COUNT):
            second.receive(ANSWER_TIMEOUT_S)

        def first_offset() -> int:
            admin.send(list_offsets_request(kept, EARLIEST), LIST_OFFSETS_VERSION)
            _, answer = admin.receive(ANSWER_TIMEOUT_S)
            offset: int = answer.topics[0].partitions[0].offset
            return offset

        wait_until(first_offset, "retention removes the first segment")
        admin.send(list_offsets_request(kept, LATEST), LIST_OFFSETS_VERSION)
        _, answer = admin.receive(ANSWER_TIMEOUT_S)
        assert answer.topics[0].partitions[0].offset == VALUE_COUNT // 2


def test_no_call_that_waits_for_the_disk_stops_the_loop(server: SlowDiskProcess) -> None:
    """Every fsync, fdatasync, syncfs, fallocate, ftruncate, unlink, rmdir and rename takes a second longer."""
    stalls: list[float] = []
    for _ in range(ROUNDS_MAX):
        before = metrics(server)
        server.slow_down(DISK_SECONDS)
        work_on_a_slow_disk(server)
        server.speed_up()
        after = metrics(server)
        stalls.append(after["kwire_loop_stalls_total"] - before["kwire_loop_stalls_total"])
        longest = after["kwire_loop_stall_seconds_max"]
        print(f"stalls above 50 ms: {stalls[-1]:.0f}; longest stall since the start: {longest * 1000:.0f} ms")
        assert server.calls_on_the_loop() == []
        if not stalls[-1]:
            break
    assert not stalls[-1], f"the loop was stopped for more than 50 ms in each of {ROUNDS_MAX} rounds: {stalls}"

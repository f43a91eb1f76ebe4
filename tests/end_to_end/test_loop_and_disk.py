"""The event loop does not wait for the disk: others are served while one request has to."""

import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import DeleteTopicsRequest

from tests.support.clients import Topics
from tests.support.clients_raw import NONE, RawConnection, batch, produce_request
from tests.support.slow_syncs import SlowSyncProcess

SYNC_SECONDS = 2.0
# Far from what a sync takes, and from what a busy machine makes of a loop that does not wait.
STALL_SECONDS_MAX = 1.0
PRODUCE_VERSION = 9
DELETE_TOPICS_VERSION = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowSyncProcess]:
    process = SlowSyncProcess(tmp_path / "kwire")
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()


def longest_stall(server: SlowSyncProcess) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    (seconds,) = (float(line.split()[1]) for line in lines if line.startswith("kwire_loop_stall_seconds_max "))
    return seconds


def test_a_topic_deleted_right_after_its_first_record_does_not_stop_the_loop(server: SlowSyncProcess) -> None:
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
        answer = deleting.call(request, DELETE_TOPICS_VERSION)
        print(f"deleted after {time.monotonic() - began:.1f} s, longest stall {longest_stall(server):.2f} s")
        assert answer.responses[0].error_code == NONE
        producing.receive()
    assert longest_stall(server) < STALL_SECONDS_MAX

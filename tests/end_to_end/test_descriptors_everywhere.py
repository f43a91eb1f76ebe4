"""Groups, the catalogue, events and their files go on after the server had no file descriptor for a while."""

import json
import resource
import struct
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from storage.disk.files import Files
from tests.support.clients import Topics, unique_name
from tests.support.clients_raw import NONE, RawConnection, batch, frame, produce_request, produced
from tests.support.event_files import found_events
from tests.support.server import KwireProcess, wait_until

# Less than any server has open: from then on nothing can be opened.
NOTHING_TO_BE_HAD = 4
PRODUCE_VERSION = 9
OFFSET_COMMIT_VERSION = 3
OFFSET_FETCH_VERSION = 3
FIND_COORDINATOR = 10
COMMITTED = 7
TIMEOUT_S = 30.0
SCHEMA = {"eventType": "made", "type": "object"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KwireProcess]:
    process = KwireProcess(tmp_path / "kwire", settings={"kwire.events.files.dir": str(tmp_path / "files")})
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()


def asked(connection: HTTPConnection, path: str, body: object) -> tuple[int, Any]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def publish(connection: HTTPConnection, topic: str, number: int) -> int:
    return asked(connection, "/events", {"topic": topic, "type": "made", "payload": {"n": number}})[0]


def find_coordinator(connection: RawConnection, group: str) -> None:
    """Until somebody looks for one, there is no topic for the offsets of groups."""
    connection.send_bytes(frame(FIND_COORDINATOR, 0, struct.pack(">h", len(group)) + group.encode()))
    connection.receive_frame()


def commit_offset(connection: RawConnection, group: str, topic: str, offset: int) -> int:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=[kind(name=topic, partitions=[part])],
    )
    return int(connection.call(request, OFFSET_COMMIT_VERSION).topics[0].partitions[0].error_code)


def committed(connection: RawConnection, group: str, topic: str) -> int:
    asked_for = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    answer = connection.call(OffsetFetchRequest(group_id=group, topics=[asked_for]), OFFSET_FETCH_VERSION)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_everything_goes_on_when_there_are_descriptors_again(server: KwireProcess, tmp_path: Path) -> None:
    topics = Topics(server.bootstrap)
    topic = topics.create("plain")
    topics.close()
    group, events = unique_name("group"), unique_name("events")
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    kafka = RawConnection(server.kafka_address, TIMEOUT_S)
    committing = RawConnection(server.kafka_address, TIMEOUT_S)
    admin, publishing = (HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S) for _ in range(2))
    codes: dict[str, int] = {}

    def commit() -> None:
        codes["commit"] = commit_offset(committing, group, topic, COMMITTED)

    def publish_second() -> None:
        codes["publish"] = publish(publishing, events, 2)

    try:
        # Each of them has written before: what they need later is open, but for what a sync takes.
        find_coordinator(committing, group)
        wait_until(lambda: commit_offset(committing, group, topic, 1) == NONE, "the group is loaded")
        assert asked(admin, "/topics", {"name": events, "schemas": [SCHEMA]})[0] == 201
        assert publish(publishing, events, 1) == 201
        wait_until(lambda: file_count(tmp_path, events) == 1, "the first event is a file")

        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (NOTHING_TO_BE_HAD, hard))
        waiting = [threading.Thread(target=one, daemon=True) for one in (commit, publish_second)]
        for one in waiting:
            one.start()
        wait_until(lambda: server.stderr_path.read_text().count("cannot be synced yet") >= 2, "both syncs are put off")
        # The catalogue has all it needs.
        assert asked(admin, "/topics", {"name": unique_name("events"), "schemas": [SCHEMA]})[0] == 201
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))

        for one in waiting:
            one.join(TIMEOUT_S)
        assert codes == {"commit": NONE, "publish": 201}
        assert committed(committing, group, topic) == COMMITTED
        wait_until(lambda: file_count(tmp_path, events) == 2, "the second event is a file")
        answer = kafka.call(produce_request(topic, batch(b"value")), PRODUCE_VERSION)
        assert produced(answer).error_code == NONE
    finally:
        for connection in (kafka, committing, admin, publishing):
            connection.close()
    assert "accepts no more records" not in server.stderr_path.read_text()


def file_count(tmp_path: Path, topic: str) -> int:
    if not (tmp_path / "files").exists():
        return 0
    return len(list(found_events(Files(), str(tmp_path / "files"), topic)))

"""A data directory with some of everything in it, made by a real server, and what has to be found in it again.

Each partition of the topic ``cells`` holds the same: four closed segments, the second of which begins with a COMMIT and
holds an ABORT marker, and one in use. Groups, transactional ids, rooms and topics of the event store are one for each
fault, in shards and folders of their own, so that one start can be asked about many faults.
"""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from storage.recovery.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from tests.support.clients_raw import (
    CORRUPT_MESSAGE,
    LATEST,
    RawConnection,
    fetch_request,
    fetched,
    list_offsets_request,
)
from tests.support.damage.faults import Fault, Stop
from tests.support.http_json import ask
from tests.support.server import KwireProcess, wait_until

CELLS: Final = "cells"
GROUP_SHARDS: Final = 16
ID_SHARDS: Final = 16
COMMITTED_OFFSET: Final = 7
ROOM_EVENTS: Final = 4
# Base offsets of the segments of each partition, and where it ends.
FIRST, WITH_ABORT, CLOSED, IN_USE, END = 0, 5, 9, 15, 21
# What the cells that are damaged between two runs have lost.
LOST_BEFORE: Final = range(12, 15)
# A segment is closed when a record is this much younger than its first one.
SEGMENT_MS: Final = 60_000
FILES_DIR: Final = "event-files"
EVENT_FILE_KINDS: Final = ("file of an event", "config of event files", "position of event files")

_MINUTE_MS: Final = 60_000


def settings(directory: Path) -> dict[str, str]:
    return {
        "offsets.topic.num.partitions": str(GROUP_SHARDS),
        "transaction.state.log.num.partitions": str(ID_SHARDS),
        "kwire.events.files.dir": str(directory / FILES_DIR),
        "kwire.webhooks.allow.private": "true",
        "log.retention.ms": "-1",
    }


def group_of(fault: Fault) -> str:
    return _in_shard("group", list(Fault).index(fault), GROUP_SHARDS)


def transactional_id_of(fault: Fault) -> str:
    return _in_shard("id", list(Fault).index(fault), ID_SHARDS)


def room_of(fault: Fault) -> str:
    return f"room-{fault}"


def event_topic_of(fault: Fault) -> str:
    return f"events-{fault}"


def file_topic_of(kind: str, fault: Fault) -> str:
    """The topic of the event store whose file of this kind is damaged."""
    return f"files-{EVENT_FILE_KINDS.index(kind)}-{fault}"


FILE_TOPICS: Final = tuple(file_topic_of(kind, fault) for kind in EVENT_FILE_KINDS for fault in Fault)


def files_of(directory: Path, topic: str) -> dict[str, bytes]:
    """What a topic has in the directory of event files: paths and contents."""
    root = directory / FILES_DIR
    paths = [*root.glob(f"data/{topic}/*/*/*.json"), root / f"config/{topic}.json"]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.exists()}


def _in_shard(stem: str, shard: int, count: int) -> str:
    """The first name of its kind whose records go to this shard: by Java's hash of a text, as in Kafka."""
    number = 0
    while _java_hash(f"{stem}-{number}") % count != shard:
        number += 1
    return f"{stem}-{number}"


def _java_hash(text: str) -> int:
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class World:
    """``values`` is what each partition of the cells holds for readers of committed data, by offset."""

    def __init__(self, directory: Path, cell_count: int) -> None:
        self.directory = directory
        self.cell_count = cell_count
        self.values: dict[int, bytes] = {}
        self.producer_ids: dict[str, int] = {}
        self.event_ids: dict[str, list[str]] = {}
        self.webhook: dict[str, Any] = {}
        self.event_files: dict[str, dict[str, bytes]] = {}
        self.now_ms = int(time.time() * 1000)

    def build(self, damaged_before: Iterable[int]) -> None:
        """Make the directories ``clean`` and ``killed``.

        The partitions named lose the end of their last segment between two runs, so that they have quarantined ranges.
        """
        server = KwireProcess(self.directory / "made", settings=settings(self.directory / "made"))
        server.start()
        try:
            server.ready()
            with RawConnection(server.kafka_address) as connection:
                self._create(connection)
                self._first_run(connection)
            self._fill_http(server)
            assert server.stop() == 0
            for cell in damaged_before:
                path = self.folder(server.directory, cell) / f"{CLOSED:020d}.log"
                path.write_bytes(path.read_bytes()[:-10])
            server.restart()
            with RawConnection(server.kafka_address) as connection:
                for cell in damaged_before:
                    wait_until(partial(_is_quarantined, connection, cell), f"the damage of {CELLS}-{cell} is known")
                self._second_run(connection, server)
            server.kill()
            shutil.copytree(server.directory, self.directory / Stop.KILLED)
            server.restart()
            with RawConnection(server.kafka_address) as connection:
                for cell in range(self.cell_count):  # opened, so that the stop has something to write down
                    connection.call(list_offsets_request(CELLS, LATEST, cell), 4)
            assert server.stop() == 0
            shutil.copytree(server.directory, self.directory / Stop.CLEAN)
            self.event_files = {topic: files_of(server.directory, topic) for topic in FILE_TOPICS}
        finally:
            server.kill()

    def folder(self, directory: Path, cell: int) -> Path:
        return directory / "data" / f"{CELLS}-{cell}"

    # --- what is written

    def _create(self, connection: RawConnection) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=CELLS,
            num_partitions=self.cell_count,
            replication_factor=1,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                for name, value in {"segment.ms": str(SEGMENT_MS), "index.interval.bytes": "0"}.items()
            ],
        )
        answer = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 4)
        assert answer.topics[0].error_code == 0, answer

    def _first_run(self, connection: RawConnection) -> None:
        self._produce(connection, FIRST, 3, minutes=-30)
        with_epoch = self._init(connection, "writer")
        self._transaction(connection, with_epoch, 3, is_commit=True, minutes=-30)
        self._await_end(connection, WITH_ABORT + 1)
        self._transaction(connection, with_epoch, 6, is_commit=False, minutes=0)
        self._await_end(connection, CLOSED)
        self._produce(connection, CLOSED, 3, minutes=10)
        self._produce(connection, CLOSED + 3, 3, minutes=10)
        for fault in Fault:
            find_coordinator(connection, group_of(fault), GROUP)
            _commit_offset(connection, group_of(fault))
            name = transactional_id_of(fault)
            self.producer_ids[name] = self._init(connection, name)[0]

    def _second_run(self, connection: RawConnection, server: KwireProcess) -> None:
        """Begins the segment that is in use in the end; the checkpoint that knows of it is waited for."""
        self._produce(connection, IN_USE, 3, minutes=20)
        self._produce(connection, IN_USE + 3, 3, minutes=20)
        for fault in Fault:
            _commit_offset(connection, group_of(fault))
            self._init(connection, transactional_id_of(fault))
        for fault in Fault:
            self._publish(server, fault)
        folders = [self.folder(server.directory, cell) for cell in range(self.cell_count)]
        wait_until(lambda: all(map(_is_checkpointed, folders)), "the checkpoints of the last segments")

    def _produce(self, connection: RawConnection, offset: int, count: int, *, minutes: int) -> None:
        values = [f"value {offset + number}".encode() for number in range(count)]
        records = batch_at(self.now_ms + minutes * _MINUTE_MS, values)
        answer = connection.call(_produce_request(dict.fromkeys(range(self.cell_count), records)), 8)
        for part in answer.responses[0].partition_responses:
            assert (part.error_code, part.base_offset) == (0, offset), part
        self.values |= {offset + number: value for number, value in enumerate(values)}

    def _init(self, connection: RawConnection, transactional_id: str) -> tuple[int, int]:
        """Producer id and epoch."""
        find_coordinator(connection, transactional_id, TRANSACTION)
        request = init_request(transactional_id)
        answer = wait_until(
            lambda: _unless_busy(connection.call(request, 1)), f"the coordinator takes {transactional_id}"
        )
        assert answer.error_code == 0, answer
        return answer.producer_id, answer.producer_epoch

    def _transaction(
        self, connection: RawConnection, producer: tuple[int, int], offset: int, *, is_commit: bool, minutes: int
    ) -> None:
        producer_id, epoch = producer
        partitions = list(range(self.cell_count))
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=CELLS, partitions=partitions)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="writer",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        wait_until(lambda: _is_added(connection.call(added, 1)), "the partitions are part of the transaction")
        values = [f"value {offset + number}".encode() for number in range(2)]
        sequence = 0 if is_commit else 2
        records = batch_at(self.now_ms + minutes * _MINUTE_MS, values, (producer_id, epoch, sequence))
        answer = connection.call(_produce_request(dict.fromkeys(partitions, records), "writer"), 8)
        for part in answer.responses[0].partition_responses:
            assert (part.error_code, part.base_offset) == (0, offset), part
        ended = EndTxnRequest(
            transactional_id="writer", producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        assert connection.call(ended, 1).error_code == 0
        if is_commit:
            self.values |= {offset + number: value for number, value in enumerate(values)}

    def _await_end(self, connection: RawConnection, end: int) -> None:
        def is_there() -> bool:
            answers = [connection.call(list_offsets_request(CELLS, LATEST, one), 4) for one in range(self.cell_count)]
            return all(answer.topics[0].partitions[0].offset == end for answer in answers)

        wait_until(is_there, f"all partitions end at {end}")

    def _fill_http(self, server: KwireProcess) -> None:
        topics = [event_topic_of(fault) for fault in Fault]
        for name in (*topics, *FILE_TOPICS):
            topic = {"name": name, "schemas": [{"eventType": "made", "type": "object"}]}
            assert ask(f"{server.http_url}/topics", "POST", topic).status == 201
        for fault in Fault:
            self._publish(server, fault)
        self._publish_events(server, FILE_TOPICS)
        hook = {"url": "http://127.0.0.1:9/", "topics": {event_topic_of(Fault.REMOVED): None}}
        made = ask(f"{server.http_url}/webhooks", "POST", hook)
        assert made.status == 201, made
        url = f"{server.http_url}/webhooks/{made.body['id']}"
        assert ask(f"{url}/pause", "POST").status < 300
        self.webhook = ask(url).body

    def _publish(self, server: KwireProcess, fault: Fault) -> None:
        room = ask(
            f"{server.http_url}/rooms/{room_of(fault)}/events",
            "POST",
            [{"event_type": "said", "data": number} for number in range(ROOM_EVENTS // 2)],
        )
        assert room.status in (200, 201), room
        self._publish_events(server, [event_topic_of(fault)])

    def _publish_events(self, server: KwireProcess, topics: Sequence[str]) -> None:
        """Three for each topic, in one commit."""
        events = [{"topic": name, "type": "made", "payload": {"n": number}} for name in topics for number in range(3)]
        answer = ask(f"{server.http_url}/events", "POST", events)
        assert answer.status == 201, answer
        for event, event_id in zip(events, answer.body["eventIds"], strict=True):
            self.event_ids.setdefault(str(event["topic"]), []).append(event_id)


def batch_at(timestamp_ms: int, values: Iterable[bytes], producer: tuple[int, int, int] | None = None) -> bytes:
    """A batch of records of one moment; ``producer`` is the id, epoch and sequence of a transactional one."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=producer is not None,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp_ms, None, value, [])
    return bytes(builder.build())


def find_coordinator(connection: RawConnection, key: str, key_type: int) -> None:
    """Ask for it until it is there: the first to ask has the internal topic made."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    wait_until(lambda: connection.call(request, 1).error_code == 0, f"a coordinator for {key}")


def init_request(transactional_id: str) -> Any:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


def _produce_request(records: Mapping[int, bytes], transactional_id: str | None = None) -> Any:
    parts = [
        ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=data)
        for index, data in records.items()
    ]
    data = ProduceRequest.TopicProduceData(name=CELLS, partition_data=parts)
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])


def _commit_offset(connection: RawConnection, group: str) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=COMMITTED_OFFSET, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name=CELLS, partitions=[part])],
    )
    wait_until(
        lambda: connection.call(request, 7).topics[0].partitions[0].error_code == 0, f"{group} commits its offset"
    )


def _unless_busy(answer: Any) -> Any:
    return None if answer.error_code in BUSY else answer


def _is_quarantined(connection: RawConnection, cell: int) -> bool:
    answer = fetched(connection.call(fetch_request(CELLS, LOST_BEFORE[0], partition=cell), 4))
    return bool(answer.error_code == CORRUPT_MESSAGE)


def _is_added(answer: Any) -> bool:
    results = answer.results_by_topic_v3_and_below[0].results_by_partition
    return all(one.partition_error_code == 0 for one in results)


def _is_checkpointed(folder: Path) -> bool:
    found = decode_checkpoint((folder / CHECKPOINT_NAME).read_bytes())
    return found is not None and found.segment_base == IN_USE


GROUP, TRANSACTION = 0, 1
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS: asked again.
BUSY: Final = (14, 15, 51)

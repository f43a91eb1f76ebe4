"""Reads a partition offset by offset, as a consumer that does not give up at an error."""

import time
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.record.memory_records import MemoryRecords

from tests.support.clients_raw import CORRUPT_MESSAGE, RawConnection, fetched

FETCH_VERSION = 11
READ_COMMITTED = 1
KAFKA_STORAGE_ERROR = 56
# What a client may be told of records that are lost.
DAMAGE_CODES = (CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR)
BAD_CRC = -1
# A log that really ends too early is asked for so long.
PATIENCE_S = 2.0


@dataclass
class PartitionContent:
    """``values`` by offset; ``errors`` are the codes at offsets that were asked for in vain, BAD_CRC among them."""

    values: dict[int, bytes] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)


def read_partition(connection: RawConnection, topic: str, partition: int, end: int) -> PartitionContent:
    """All committed records below ``end``."""
    content = PartitionContent()
    offset = 0
    deadline = time.monotonic() + PATIENCE_S
    while offset < end:
        answer = fetched(connection.call(_request(topic, partition, offset), FETCH_VERSION))
        if not answer.error_code and answer.high_watermark < end and time.monotonic() < deadline:
            continue  # what was found again is synced before anybody may read it
        if answer.error_code or not answer.records:
            content.errors[offset] = answer.error_code
            offset += 1
            continue
        aborted = {(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()}
        offset = max(_take(bytes(answer.records), aborted, content), offset + 1)
    return content


def _take(data: bytes, aborted: set[tuple[int, int]], content: PartitionContent) -> int:
    """Add the records of an answer, without those of aborted transactions; the offset after them."""
    records = MemoryRecords(data)
    open_aborts: set[int] = set()
    next_offset = 0
    while records.has_next():
        batch: Any = records.next_batch()
        next_offset = batch.base_offset + batch.last_offset_delta + 1
        if not batch.validate_crc():
            content.errors |= dict.fromkeys(range(batch.base_offset, next_offset), BAD_CRC)
            continue
        if batch.is_control_batch:
            open_aborts.discard(batch.producer_id)
            continue
        open_aborts |= {producer for producer, first in aborted if first <= batch.base_offset}
        if batch.is_transactional and batch.producer_id in open_aborts:
            continue
        content.values |= {record.offset: record.value for record in batch}
    return next_offset


def _request(topic: str, partition: int, offset: int) -> Any:
    part = FetchRequest.FetchTopic.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )

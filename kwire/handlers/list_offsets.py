"""ListOffsets 1-11: an offset by position or by time.

- Timestamps below zero ask for a position: -1 latest a reader may see, -2 earliest, -3 the largest timestamp (7+),
  -4 earliest on local disk (8+), -5 latest tiered (9+), -6 earliest not yet tiered (11+). Nothing is tiered here: -4 is
  the earliest, -5 and -6 find nothing.
- A time with no record at or after it finds offset -1 with timestamp -1, never a watermark.
- Version 4 checks the client's leader epoch and tells ours.
"""

from kwire.broker.partition import Partition, code_of
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.epochs import check_epoch
from kwire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    answers = []
    for asked in request.topics:
        topic = context.services.topics.get(asked.name)
        partitions = []
        for one in asked.partitions:
            try:
                partition = topic.partition(one.partition_index) if topic else None
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                partitions.append(_find(context, partition, one))
            except KafkaError as error:
                partitions.append(_failed(one, error.code))
            except StorageError as error:
                partitions.append(_failed(one, code_of(error)))
        answers.append(ListOffsetsTopicResponse(name=asked.name, partitions=partitions))
    return ListOffsetsResponse(topics=answers)


def _find(context: Context, partition: Partition, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    check_epoch(partition, asked.current_leader_epoch)
    log = partition.log
    timestamp, offset, epoch = -1, -1, -1
    wanted = asked.timestamp
    if wanted < EARLIEST_PENDING_UPLOAD or context.api_version < FIRST_VERSION_OF.get(wanted, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if wanted == LATEST:
        offset = partition.high_watermark
        epoch = partition.leader_epoch
    elif wanted in (EARLIEST, EARLIEST_LOCAL):
        offset = log.log_start_offset
        epoch = log.epochs.epoch_for(offset)
    elif wanted == MAX_TIMESTAMP or wanted >= 0:
        found = log.max_timestamp_offset() if wanted == MAX_TIMESTAMP else log.offset_for_timestamp(wanted)
        if found is not None and found.offset < partition.high_watermark:
            timestamp, offset = found.timestamp_ms, found.offset
            epoch = log.epochs.epoch_for(offset)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)

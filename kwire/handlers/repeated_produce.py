"""A shortcut for the commonest request there is: the one before it, with other records.

A producer that writes to one partition sends the same bytes again and again except for the batch, and gets the same
answer except for the offsets. What the general way (decode, look up, encode) found out about such a request is
remembered: the bytes around the batch, the partition, and the answer around its numbers. When the next request fits,
only the batch is looked at. When it does not, or anything is wrong with it, the general way deals with it.
"""

import struct
from collections.abc import Callable

from kwire.broker.partition import Partition
from kwire.errors import KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import encode_message
from kwire.wire.errors import WireError
from kwire.wire.messages.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire.wire.varint import decode_uvarint, encode_uvarint
from storage.batch import check_batch
from storage.errors import StorageError

# From version 5 on the three numbers that differ stand side by side in the answer; from 7 on every codec is allowed.
FIRST_VERSION = 7
# Values no real answer has, to find the place of the numbers in an encoded one.
_MARKS = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)

_pack_numbers = struct.Struct(">qqq").pack
_unpack_head = struct.Struct(">ii").unpack_from
_unpack_size = struct.Struct(">i").unpack_from
# Behind the API key, the version and the correlation id of a frame.
_HEAD_BYTES = 8


class RepeatedProduce:
    """One connection's memory of its last single-partition Produce."""

    __slots__ = (
        "_answer_size",
        "_before",
        "_behind",
        "_call",
        "_is_flexible",
        "_pack_answer",
        "_partition",
        "_parts",
        "_start",
        "_target",
    )  # fmt: skip

    def __init__(self) -> None:
        self._partition: Partition | None = None
        self._target: object = None
        self._call = -1  # API key and version, as the one number they make
        self._before = self._behind = b""
        self._start = 0
        self._is_flexible = False
        self._parts = (b"", b"")
        self._pack_answer: Callable[..., bytes] = _pack_numbers
        self._answer_size = 0

    def answer(self, frame: memoryview) -> bytes | None:
        """Append the batch of a request frame and return the answer's frame, or None: then nothing has been done."""
        partition = self._partition
        if partition is None:
            return None
        try:
            call, correlation_id = _unpack_head(frame)
            start = self._start
            if call != self._call or frame[_HEAD_BYTES:start].tobytes() != self._before:
                return None
            if self._is_flexible:
                size, start = decode_uvarint(frame, start)
                size -= 1
            else:
                (size,) = _unpack_size(frame, start)
                start += 4
            end = start + size
            if size < 0 or frame[end:].tobytes() != self._behind:
                return None
            batch = frame[start:end]
            header = check_batch(batch)
            if header.is_transactional or partition.settings.is_log_append_time:
                # A batch that gets our time is changed even if it cannot be stored: it could not be looked at twice.
                return None
            appended = partition.append(batch, header)
        except (StorageError, KafkaError, WireError, struct.error, IndexError):
            return None
        before, after = self._parts
        return self._pack_answer(
            self._answer_size,
            correlation_id,
            before,
            appended.base_offset,
            appended.log_append_time_ms,
            partition.log.log_start_offset,
            after,
        )

    def learn(self, context: Context, frame: memoryview, request: ProduceRequest, response: ProduceResponse) -> None:
        """Remember a request that the general way has answered, when it comes for the second time."""
        self._partition = None
        version = context.api_version
        if version < FIRST_VERSION or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        [asked], [answered] = request.topic_data, response.responses
        [data], [result] = asked.partition_data, answered.partition_responses
        target = (version, asked.name, asked.topic_id, data.index)
        topics = context.services.topics
        topic = topics.get(asked.name) or topics.get_by_id(asked.topic_id)
        records = data.records
        # Learning costs more than it saves for a connection that writes here and there in turn.
        is_repeated, self._target = target == self._target, target
        if not is_repeated or result.error_code or topic is None or records is None:
            return
        self._is_flexible = version >= PRODUCE.first_flexible
        # Three structs end behind the records; without unknown tags each leaves one zero byte.
        self._behind = bytes(3 if self._is_flexible else 0)
        size_bytes = len(encode_uvarint(len(records) + 1)) if self._is_flexible else 4
        self._start = len(frame) - len(self._behind) - len(records) - size_bytes
        self._call, _ = _unpack_head(frame)
        self._before = frame[_HEAD_BYTES : self._start].tobytes()
        before, after = _answer_around_numbers(answered, version)
        # The header of a flexible answer ends with its own, empty, tags.
        self._parts = bytes(self._is_flexible) + before, after
        packing = struct.Struct(f">ii{len(self._parts[0])}sqqq{len(after)}s")
        self._pack_answer, self._answer_size = packing.pack, packing.size - 4
        self._partition = topic.partition(data.index)


def _answer_around_numbers(answered: TopicProduceResponse, version: int) -> tuple[bytes, bytes]:
    """The encoded answer for this topic and partition, without base offset, append time and log start offset."""
    offset, time, start = _MARKS
    marked = PartitionProduceResponse(
        index=answered.partition_responses[0].index,
        error_code=0,
        base_offset=offset,
        log_append_time_ms=time,
        log_start_offset=start,
    )
    topic = TopicProduceResponse(name=answered.name, topic_id=answered.topic_id, partition_responses=[marked])
    encoded = encode_message(ProduceResponse(responses=[topic]), version)
    before, _, after = encoded.partition(_pack_numbers(*_MARKS))
    return before, after

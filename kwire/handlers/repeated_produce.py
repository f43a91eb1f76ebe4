"""A shortcut for the commonest request there is: the one before it, with other records.

A producer sends the same bytes again and again except for the batches and the partitions they go to, and gets the same
answer except for a few numbers per partition. What the general way (decode, look up, encode) found out about such a
request is remembered: the bytes in front of its partitions, the topic, and the answer around its numbers. When the next
request fits, only its batches are looked at. When it does not, or anything is wrong with it before the first batch is
stored, the general way deals with it.
"""

import struct
from collections.abc import Callable

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, DurableAnswer
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
from storage.batch import BatchHeader, check_batch
from storage.errors import StorageError
from storage.format import TRANSACTIONAL_BIT

# From version 5 on the numbers that differ stand side by side in the answer; from 7 on every codec is allowed.
FIRST_VERSION = 7
# Requests with more partitions than this go the general way: their answer's count would take more than one byte.
PARTITIONS_MAX = 100
ALL = -1
# Values no real answer has, to find the place of the numbers in an encoded one.
_MARKS = (0x01020304, 0x0506, 0x0102030405060708, 0x1112131415161718, 0x2122232425262728)

_pack_numbers = struct.Struct(">ihqqq").pack
_unpack_head = struct.Struct(">ii").unpack_from
_pack_head = struct.Struct(">ii").pack
_unpack_int = struct.Struct(">i").unpack_from
_pack_int = struct.Struct(">i").pack
# Behind the API key, the version and the correlation id of a frame.
_HEAD_BYTES = 8


# One partition's share of a request: its number, itself, its batch and the batch's header.
_Part = tuple[int, Partition, memoryview, BatchHeader]


class RepeatedProduce:
    """One connection's memory of its last Produce to one topic."""

    __slots__ = (
        "_acks",
        "_after",
        "_before",
        "_between",
        "_call",
        "_is_flexible",
        "_pack_one",
        "_partitions",
        "_start",
        "_tail",
        "_target",
        "_timeout_ms",
        "_topic",
        "_version",
        "_words",
    )  # fmt: skip

    def __init__(self) -> None:
        self._topic: Topic | None = None
        self._target: object = None
        self._call = -1  # API key and version, as the one number they make
        self._version = 0
        self._before = b""
        self._start = 0
        self._tail = b""
        self._is_flexible = False
        self._acks = ALL
        self._timeout_ms = 0
        self._partitions: list[Partition] = []
        # The answer: words in front of the count of partitions, behind the numbers of each, and behind the last.
        self._words = self._between = self._after = b""
        # The whole answer for one partition, around its numbers; most requests are for one.
        self._pack_one: Callable[..., bytes] = _pack_numbers

    def answer(self, frame: memoryview) -> bytes | DurableAnswer | None:
        """Append the batches of a request frame and return the answer's frame, or None: then nothing has been done."""
        if self._topic is None:
            return None
        try:
            call, correlation_id = _unpack_head(frame)
            if call != self._call or frame[_HEAD_BYTES : self._start].tobytes() != self._before:
                return None
            parts = self._parts(frame)
            if parts is None:
                return None
            # Up to here nothing has happened; an append that fails as the first one has changed nothing either.
            index, partition, batch, header = parts[0]
            offset, last_offset, time_ms, _ = partition.append(batch, header)
        except (StorageError, KafkaError, WireError, struct.error, IndexError):
            return None
        start_offset = partition.log.log_start_offset
        if len(parts) == 1:
            framed = self._pack_one(correlation_id, index, 0, offset, time_ms, start_offset)
            if last_offset < partition.high_watermark or self._acks != ALL:
                return framed
            return DurableAnswer(framed, [(partition, last_offset + 1)], self._timeout_ms)
        numbers = [_pack_numbers(index, 0, offset, time_ms, start_offset), self._between]
        unsafe = [(partition, last_offset + 1)]
        self._append_rest(parts, numbers, unsafe)
        count = len(parts)
        counted = bytes((count + 1,)) if self._is_flexible else _pack_int(count)
        body = b"".join((self._words, counted, *numbers, self._after))
        framed = _pack_head(len(body) + 4, correlation_id) + body
        unsafe = [(partition, end) for partition, end in unsafe if partition.high_watermark < end]
        return DurableAnswer(framed, unsafe, self._timeout_ms) if unsafe and self._acks == ALL else framed

    def _append_rest(self, parts: list[_Part], numbers: list[bytes], unsafe: list[tuple[Partition, int]]) -> None:
        """All but the first, each with its own fate."""
        between = self._between
        for index, partition, batch, header in parts[1:]:
            try:
                offset, last_offset, time_ms, _ = partition.append(batch, header)
            except (StorageError, KafkaError) as error:
                numbers.append(self._failed(index, error))
                continue
            numbers += (_pack_numbers(index, 0, offset, time_ms, partition.log.log_start_offset), between)
            unsafe.append((partition, last_offset + 1))

    def _parts(self, frame: memoryview) -> list[_Part] | None:
        """The request's partitions, each batch checked; None if this is not for us."""
        is_flexible, position, size = self._is_flexible, self._start, len(frame)
        partitions = self._partitions
        if is_flexible:
            count = frame[position] - 1
            position += 1
        else:
            (count,) = _unpack_int(frame, position)
            position += 4
        if not 0 < count <= PARTITIONS_MAX:
            return None
        parts = []
        while count:
            count -= 1
            (index,) = _unpack_int(frame, position)
            if is_flexible:
                length, start = decode_uvarint(frame, position + 4)
                length -= 1
            else:
                (length,) = _unpack_int(frame, position + 4)
                start = position + 8
            position = start + length
            if length <= 0 or position > size or index < 0:
                return None
            batch = frame[start:position]
            header = check_batch(batch)
            partition = partitions[index]
            if header.attributes & TRANSACTIONAL_BIT or partition.settings.is_log_append_time:
                # A batch that gets our time is changed even if it cannot be stored: it could not be looked at twice.
                return None
            if is_flexible:
                if frame[position]:  # tags; none are known
                    return None
                position += 1
            parts.append((index, partition, batch, header))
        # Topic and request end here; without unknown tags each leaves one zero byte.
        if frame[position:] != self._tail:
            return None
        return parts

    def _failed(self, index: int, error: StorageError | KafkaError) -> bytes:
        """A partition whose batch could not be stored after another one of the same request was."""
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = code_of(error), str(error)
        failed = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
        encoded = self._encoded(failed)
        return encoded[len(self._words) - self._head_tags + self._count_bytes : len(encoded) - len(self._after)]

    @property
    def _head_tags(self) -> int:
        """The header of a flexible answer ends with its own, empty, tags."""
        return 1 if self._is_flexible else 0

    @property
    def _count_bytes(self) -> int:
        return 1 if self._is_flexible else 4

    def learn(
        self, context: Context, frame: memoryview, request: ProduceRequest, response: ProduceResponse | None
    ) -> None:
        """Remember a request that the general way has answered, or will, when it comes for the second time."""
        self._topic = None
        version = context.api_version
        if version < FIRST_VERSION or len(request.topic_data) != 1 or request.transactional_id is not None:
            return
        [asked] = request.topic_data
        target = (version, asked.name, asked.topic_id, request.acks)
        topics = context.services.topics
        topic = topics.get(asked.name) if asked.name else topics.get_by_id(asked.topic_id)
        # Learning costs more than it saves for a connection that writes here and there in turn.
        is_repeated, self._target = target == self._target, target
        if not is_repeated or topic is None or topic.is_internal or (response is not None and _has_error(response)):
            return
        if topic.settings.is_event_topic:  # these are committed; a topic is one for ever, or never
            return
        self._version = version
        self._is_flexible = version >= PRODUCE.first_flexible
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._call, _ = _unpack_head(frame)
        self._start = len(frame) - self._size_of_partitions(request)
        self._before = frame[_HEAD_BYTES : self._start].tobytes()
        index, error_code, offset, time_ms, start = _MARKS
        marked = PartitionProduceResponse(
            index=index, error_code=error_code, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start
        )
        self._topic = topic
        self._partitions = topic.partitions
        before, _, after = self._encoded(marked).partition(_pack_numbers(*_MARKS))
        count_bytes = self._count_bytes
        self._words = bytes(self._head_tags) + before[:-count_bytes]
        # Topic tags, throttle time and the answer's own tags end it; what is left belongs to each partition.
        end_bytes = 1 + 4 + 1 if self._is_flexible else 4
        self._between, self._after = after[:-end_bytes], after[-end_bytes:]
        self._tail = bytes(2 if self._is_flexible else 0)
        self._pack_one = self._packing_of_one(bytes(self._head_tags) + before, after)

    def _packing_of_one(self, before: bytes, after: bytes) -> Callable[..., bytes]:
        packing = struct.Struct(f">ii{len(before)}sihqqq{len(after)}s")
        size, pack = packing.size - 4, packing.pack

        def pack_one(correlation_id: int, index: int, code: int, offset: int, time_ms: int, start_offset: int) -> bytes:
            return pack(size, correlation_id, before, index, code, offset, time_ms, start_offset, after)

        return pack_one

    def _size_of_partitions(self, request: ProduceRequest) -> int:
        """How many bytes the partitions, their count and everything behind them take in the request."""
        size = self._count_bytes + (2 if self._is_flexible else 0)
        for data in request.topic_data[0].partition_data:
            records = len(data.records or b"")
            size += 4 + records + (len(encode_uvarint(records + 1)) + 1 if self._is_flexible else 4)
        return size

    def _encoded(self, answer: PartitionProduceResponse) -> bytes:
        topic = self._topic
        assert topic is not None
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        return encode_message(ProduceResponse(responses=[answered]), self._version)


def _has_error(response: ProduceResponse) -> bool:
    return any(
        answer.error_code != ErrorCode.NONE for topic in response.responses for answer in topic.partition_responses
    )

"""A shortcut for the commonest request there is: the one before it, with other records.

A producer sends the same bytes again and again except for the batches and the partitions they go to, and gets the same
answer except for a few numbers per partition. What the general way (decode, look up, encode) found out about such a
request is remembered: the bytes in front of its partitions, the topic, and the answer around its numbers. When the next
request fits, only its batches are looked at. When it does not, or anything is wrong with it before the first batch is
stored, the general way deals with it.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from kwire.broker.batch_validation import TooLongForLoop, is_light, validate_here
from kwire.broker.partition import Partition
from kwire.broker.topics import Topic
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, DurableAnswer
from kwire.handlers.produce_errors import refuse, refused
from kwire.wire.codec import decode_message, encode_message
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
from storage.format import NO_TIMESTAMP, TRANSACTIONAL_BIT

# From version 5 on the numbers that differ stand side by side in the answer; from 7 on every codec is allowed.
FIRST_VERSION = 7
# Requests with more partitions than this go the general way: their answer's count would take more than one byte.
PARTITIONS_MAX = 100
# Larger requests go the general way, which does them in pieces.
FRAME_BYTES_MAX = 4 * 1024 * 1024
# A connection remembers how answers of up to so many partitions are made; what for is 200 bytes for each partition, and
# a node has many connections. What it does not remember, it shares with the others.
PACKINGS_MAX = 16
STRUCTS_MAX = 256
# Values no real answer has, to find the place of the numbers in an encoded one.
_MARKS = (0x01020304, 0x0506, 0x0102030405060708, 0x1112131415161718, 0x2122232425262728)

# A partition's numbers in an answer: index, error code, base offset, append time, log start.
_NUMBERS = struct.Struct(">ihqqq")
# The size of an answer and the correlation id of its request.
_SIZE_BYTES = 4
_ANSWER_HEAD = struct.Struct(">ii")
_unpack_call = struct.Struct(">i").unpack_from
# A partition's index and the length of its batch. Without a sign: what is below zero becomes too large, and is refused.
_unpack_part = struct.Struct(">II").unpack_from
# Nearly all lengths take up to three bytes, and a batch is never so short that those would not be there.
_unpack_flexible_part = struct.Struct(">IBBB").unpack_from
# API key, version and correlation id of a frame.
_HEAD_BYTES = 8


# One partition's share of a request: its number, itself, its batch and the batch's header.
_Part = tuple[int, Partition, memoryview, BatchHeader]
# How an answer is made: its size, what is in front of the first partition, and what packs these and all the rest.
_Packing = tuple[int, bytes, Callable[..., bytes]]


class RepeatedProduce:
    """One connection's memory of its last Produce to one topic."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_call",
        "_clock",
        "_is_flexible",
        "_packing_of_one",
        "_packings",
        "_partitions",
        "_start",
        "_tail",
        "_target",
        "_timeout_ms",
        "_topic",
        "_unpack_head",
        "_version",
        "_words",
    )  # fmt: skip

    def __init__(self) -> None:
        self._topic: Topic | None = None
        self._target: object = None
        self._clock: Clock | None = None
        self._call = -1  # API key and version, as the one number they make
        self._version = 0
        self._is_flexible = False
        # The request: what is in front of the count of partitions, where they begin, and what follows the last one.
        self._before = b""
        self._unpack_head: Callable[[memoryview], tuple[int, int, bytes, int]] = self._unpacking_of_head()
        self._start = 0
        self._tail = b""
        self._timeout_ms = 0
        self._partitions: list[Partition] = []
        # The answer: words in front of the count of partitions, behind the numbers of each, and behind the last.
        self._words = self._between = self._after = b""
        # How answers without errors are made, by their number of partitions.
        self._packings: dict[int, _Packing] = {}
        self._packing_of_one = self._packing(1)

    def answer(self, frame: memoryview) -> bytes | DurableAnswer | None:
        """Append the batches of a request frame and return the answer's frame, or None: then nothing has been done."""
        topic = self._topic
        if topic is None or topic.settings.is_log_append_time or len(frame) > FRAME_BYTES_MAX:
            # A batch that gets our time is changed even if it cannot be stored: it could not be looked at twice.
            return None
        try:
            call, correlation_id, before, count = self._unpack_head(frame)
            if call != self._call or before != self._before:
                return None
            parts = self._parts(frame, count)
        except (StorageError, WireError, struct.error, IndexError):
            return None
        if parts is None:
            return None
        return self._append_one(parts[0], correlation_id) if len(parts) == 1 else self._append(parts, correlation_id)

    def _append_one(self, part: _Part, correlation_id: int) -> bytes | DurableAnswer | None:
        """Most requests are for one partition."""
        index, partition, batch, header = part
        try:
            appended = partition.append(batch, header, None, validate_here)
        except (StorageError, KafkaError, TooLongForLoop):
            return None
        size, before, pack = self._packing_of_one
        framed = pack(
            size,
            correlation_id,
            before,
            index,
            0,
            appended.base_offset,
            appended.log_append_time_ms,
            partition.log_start_offset,
            self._between,
            self._after,
        )
        if appended.last_offset < partition.high_watermark:
            return framed
        return DurableAnswer(framed, [(index, partition, appended.last_offset + 1)], self._timeout_ms, self._version)

    def _append(self, parts: list[_Part], correlation_id: int) -> bytes | DurableAnswer | None:
        """Each batch has its own fate, but for the first: when that cannot be stored, nothing has happened."""
        assert self._clock is not None
        now_ms = self._clock.now_ms()
        if not _are_light(parts, now_ms):
            return None
        between = self._between
        numbers: list[int | bytes] = []
        has_failed = False
        unsafe = []
        for index, partition, batch, header in parts:
            try:
                appended = partition.append(batch, header, now_ms, validate_here)
            except (StorageError, KafkaError) as error:
                if not numbers:
                    return None
                numbers += self._failed(index, error)
                has_failed = True
                continue
            start_offset = partition.log_start_offset
            numbers += (index, 0, appended.base_offset, appended.log_append_time_ms, start_offset, between)
            if partition.high_watermark <= appended.last_offset:
                unsafe.append((index, partition, appended.last_offset + 1))
        size, before, pack = self._packing_around(_lengths(numbers)) if has_failed else self._packing(len(parts))
        framed = pack(size, correlation_id, before, *numbers, self._after)
        return DurableAnswer(framed, unsafe, self._timeout_ms, self._version) if unsafe else framed

    def with_failures(self, answer: DurableAnswer, failures: Mapping[int, KafkaError]) -> bytes:
        """The answer's frame, with the errors of partitions that did not become durable, by their index."""
        _, correlation_id = _ANSWER_HEAD.unpack_from(answer.framed)
        start = _ANSWER_HEAD.size + (1 if answer.version >= PRODUCE.first_flexible else 0)
        response = decode_message(ProduceResponse, answer.version, memoryview(answer.framed)[start:])
        for one in response.responses[0].partition_responses:
            if (error := failures.get(one.index)) is not None:
                refuse(one, error)
        body = encode_message(response, answer.version)
        size = start - _SIZE_BYTES + len(body)
        return _ANSWER_HEAD.pack(size, correlation_id) + answer.framed[_ANSWER_HEAD.size : start] + body

    def _parts(self, frame: memoryview, count: int) -> list[_Part] | None:
        """The request's partitions, each batch checked; None if this is not for us."""
        is_flexible, position, partitions = self._is_flexible, self._start, self._partitions
        if is_flexible:
            count -= 1
        if not 0 < count <= PARTITIONS_MAX:
            return None
        parts = []
        while count:
            count -= 1
            if is_flexible:
                index, first, second, third = _unpack_flexible_part(frame, position)
                # As `decode_uvarint` does, which reads each byte through the view: that would be 0.2 µs more per batch.
                if first < 128:
                    start, length = position + 5, first - 1
                elif second < 128:
                    start, length = position + 6, (first & 127 | second << 7) - 1
                elif third < 128:
                    start, length = position + 7, (first & 127 | (second & 127) << 7 | third << 14) - 1
                else:
                    length, start = decode_uvarint(frame, position + 4)
                    length -= 1
                end = start + length
                if frame[end]:  # tags; none are known
                    return None
                position = end + 1
            else:
                index, length = _unpack_part(frame, position)
                start = position + 8
                position = end = start + length
            batch = frame[start:end]
            header = check_batch(batch)
            if header.attributes & TRANSACTIONAL_BIT:
                return None
            parts.append((index, partitions[index], batch, header))
        # Topic and request end here; without unknown tags each leaves one zero byte.
        return parts if frame[position:] == self._tail and position <= len(frame) else None

    def _failed(self, index: int, error: StorageError | KafkaError) -> tuple[int | bytes, ...]:
        """Numbers and words for a batch that could not be stored after another one of the same request was."""
        encoded = self._encoded(refused(index, error))
        start = len(self._words) - self._head_tags + self._count_bytes
        words = encoded[start + _NUMBERS.size : len(encoded) - len(self._after)]
        return *_NUMBERS.unpack_from(encoded, start), words

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
        if topic.settings.is_event_topic or topic.settings.is_log_append_time:  # `answer` would have no use for it
            return
        self._version = version
        self._is_flexible = version >= PRODUCE.first_flexible
        self._timeout_ms = request.timeout_ms
        self._clock = context.services.clock
        (self._call,) = _unpack_call(frame)
        self._start = len(frame) - self._size_of_partitions(request)
        self._before = frame[_HEAD_BYTES : self._start - self._count_bytes].tobytes()
        self._unpack_head = self._unpacking_of_head()
        index, error_code, offset, time_ms, start = _MARKS
        marked = PartitionProduceResponse(
            index=index, error_code=error_code, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start
        )
        self._topic = topic
        self._partitions = topic.partitions
        before, _, after = self._encoded(marked).partition(_NUMBERS.pack(*_MARKS))
        count_bytes = self._count_bytes
        self._words = bytes(self._head_tags) + before[:-count_bytes]
        # Topic tags, throttle time and the answer's own tags end it; what is left belongs to each partition.
        end_bytes = 1 + 4 + 1 if self._is_flexible else 4
        self._between, self._after = after[:-end_bytes], after[-end_bytes:]
        self._tail = bytes(2 if self._is_flexible else 0)
        self._packings = {}
        self._packing_of_one = self._packing(1)

    def _unpacking_of_head(self) -> Callable[[memoryview], tuple[int, int, bytes, int]]:
        """Reads the call, the correlation id, what is in front of the count of partitions, and that count."""
        return struct.Struct(f">ii{len(self._before)}s{'B' if self._is_flexible else 'i'}").unpack_from

    def _packing(self, count: int) -> _Packing:
        """For answers without errors."""
        packing = self._packings.get(count)
        if packing is None:
            packing = self._packing_around([len(self._between)] * count)
            if count <= PACKINGS_MAX:
                self._packings[count] = packing
        return packing

    def _packing_around(self, lengths: list[int]) -> _Packing:
        """For answers with so many partitions, and words of this length behind the numbers of each."""
        count = len(lengths)
        before = self._words + (bytes((count + 1,)) if self._is_flexible else count.to_bytes(4))
        parts = "".join(f"ihqqq{length}s" for length in lengths)
        packing = _struct(f">ii{len(before)}s{parts}{len(self._after)}s")
        return packing.size - 4, before, packing.pack

    def _size_of_partitions(self, request: ProduceRequest) -> int:
        """How many bytes the partitions and everything behind them take in the request."""
        size = 2 if self._is_flexible else 0
        for data in request.topic_data[0].partition_data:
            records = len(data.records or b"")
            size += 4 + records + (len(encode_uvarint(records + 1)) + 1 if self._is_flexible else 4)
        return size

    def _encoded(self, answer: PartitionProduceResponse) -> bytes:
        topic = self._topic
        assert topic is not None
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        return encode_message(ProduceResponse(responses=[answered]), self._version)


def _are_light(parts: Sequence[_Part], now_ms: int) -> bool:
    """Whether all of them can be appended in one go, as far as their records have to be read."""
    settings = parts[0][1].settings
    is_plain, latest_ms = settings.is_plain, now_ms + settings.timestamp_after_max_ms
    for _, _, _, header in parts:
        if not (is_plain and NO_TIMESTAMP < header.max_timestamp <= latest_ms) and not is_light(
            header, settings, now_ms
        ):
            return False
    return True


def _lengths(numbers: list[int | bytes]) -> list[int]:
    return [len(words) for words in numbers if isinstance(words, bytes)]


@lru_cache(STRUCTS_MAX)
def _struct(format: str) -> struct.Struct:
    return struct.Struct(format)


def _has_error(response: ProduceResponse) -> bool:
    return any(
        answer.error_code != ErrorCode.NONE for topic in response.responses for answer in topic.partition_responses
    )

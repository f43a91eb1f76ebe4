"""Templates of Produce: cached parsing and encoding for requests that repeat the previous one with other records.

The requests of a producer usually differ only in their batches and partitions. The responses differ only in a few
numbers per partition. A template stores the constant parts: the bytes before the partitions, the topic, and the bytes
of the response around its numbers. A template replaces only decoding and encoding. Admission, append and wait are
implemented by `admission.py` and `append.py`. A request that does not fit the template is decoded.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from kwire.broker.batch_validation import TooLongForLoop, is_light, validate_on_loop
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.admission import FIRST_ZSTD_VERSION, Admitted, admit_repeated_batch, admitted
from kwire.handlers.produce.append import PartitionAppend, when_settled
from kwire.handlers.shared.context import Context, DeferredFrame
from kwire.wire.codec import encode_message
from kwire.wire.errors import WireError
from kwire.wire.messages.produce import PRODUCE, ProduceRequest, ProduceResponse, TopicProduceResponse
from kwire.wire.varint import decode_uvarint, encode_uvarint
from storage.batch.format import NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.errors import StorageError
from storage.log.log import Appended

# Templates exist from version 7 on, because these versions allow every codec. In their responses the variable numbers
# of a partition are adjacent.
FIRST_VERSION = FIRST_ZSTD_VERSION
# Requests with more partitions are decoded. The limit keeps the partition count of a flexible response in one byte.
PARTITIONS_MAX = 100
# Larger requests are decoded and handled in chunks.
FRAME_BYTES_MAX = 4 * 1024 * 1024
# Each template caches the structs of responses with up to this many partitions (about 200 bytes per partition). The
# limit is low, because a node has many connections and each has its template. The structs of larger responses are in a
# cache that all connections share.
PACKINGS_MAX = 16
STRUCTS_MAX = 256

# The numbers of a partition in a response: index, error code, base offset, append time, log start offset.
_NUMBERS = struct.Struct(">ihqqq")
# Placeholders that mark the positions of the numbers in an encoded response.
_PLACEHOLDERS = (0x01020304, 0, 0x0102030405060708, 0x1112131415161718, 0x2122232425262728)
# The size of a response and the correlation id of its request.
_ANSWER_HEAD = struct.Struct(">ii")
_SIZE_BYTES = 4
_unpack_call = struct.Struct(">i").unpack_from
# The index of a partition and the length of its batch. Both are read as unsigned: a negative number becomes a very
# large one, and the request does not fit the template.
_unpack_part = struct.Struct(">II").unpack_from
# The index of a partition and the first three bytes after it. The batch length is nearly always in these bytes. A batch
# is longer than three bytes, so these bytes always exist.
_unpack_flexible_part = struct.Struct(">IBBB").unpack_from
# API key, version and correlation id of a frame.
_HEAD_BYTES = 8

# A response's size, the bytes before its first partition, and the function that packs it.
_Packing = tuple[int, bytes, Callable[..., bytes]]


class Template:
    """The template of requests to one topic and of their responses. Only the cache `_packings` is mutable."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_call",
        "_count_bytes",
        "_head_tags",
        "_is_flexible",
        "_names",
        "_packing_of_one",
        "_packings",
        "_partitions",
        "_start",
        "_tail",
        "_topic",
        "_unpack_head",
        "_version",
        "_words",
        "admitted",
        "clock",
        "timeout_ms",
    )

    def __init__(self, context: Context, frame: memoryview, request: ProduceRequest, assumed: Admitted) -> None:
        version = context.api_version
        self.admitted = assumed
        self.clock: Clock = context.services.clock
        self.timeout_ms = request.timeout_ms
        self._topic = assumed.topic
        self._partitions = assumed.topic.partitions
        self._version = version
        self._names = context.views.names
        self._is_flexible = is_flexible = version >= PRODUCE.first_flexible
        self._count_bytes = 1 if is_flexible else 4
        # The header of a flexible response ends with its tagged fields, which are empty.
        self._head_tags = bytes(1 if is_flexible else 0)
        # Of the request: API key and version as one number, the bytes between the correlation id and the partition
        # count, the position of the first partition, and the bytes after the last partition.
        (self._call,) = _unpack_call(frame)
        self._start = len(frame) - self._size_of_partitions(request)
        self._before = before = frame[_HEAD_BYTES : self._start - self._count_bytes].tobytes()
        self._unpack_head = struct.Struct(f">ii{len(before)}s{'B' if is_flexible else 'i'}").unpack_from
        self._tail = bytes(2 if is_flexible else 0)
        # Of the response: the bytes before the partition count, after each partition's numbers, and at the end.
        index, _, base_offset, append_time_ms, log_start_offset = _PLACEHOLDERS
        sample = PartitionAppend(
            index,
            memoryview(b""),
            appended=Appended(base_offset, base_offset, append_time_ms, False),
            log_start_offset=log_start_offset,
        )
        front, _, after = self._encoded([sample]).partition(_NUMBERS.pack(*_PLACEHOLDERS))
        self._words = self._head_tags + front[: -self._count_bytes]
        # A flexible response ends with the tags of the topic, the throttle time and the tags of the response. Other
        # responses end with the throttle time. The bytes before this end are repeated after each partition's numbers.
        end_bytes = 1 + 4 + 1 if is_flexible else 4
        self._between, self._after = after[:-end_bytes], after[-end_bytes:]
        # The packings of responses without errors, by the number of partitions.
        self._packings: dict[int, _Packing] = {}
        self._packing_of_one = self._packing(1)

    # --- the request

    def parse(self, frame: memoryview) -> tuple[int, list[PartitionAppend]] | None:
        """Return the correlation id and the admitted batches of a request, or None if it does not fit the template.

        A request that does not fit may also raise KafkaError, StorageError, WireError, struct.error or IndexError.
        """
        call, correlation_id, before, count = self._unpack_head(frame)
        if call != self._call or before != self._before:
            return None
        is_flexible, position, partitions = self._is_flexible, self._start, self._partitions
        if is_flexible:
            count -= 1
        if not 0 < count <= PARTITIONS_MAX:
            return None
        appends = []
        for _ in range(count):
            if is_flexible:
                index, first, second, third = _unpack_flexible_part(frame, position)
                # Equal to `decode_uvarint`, which takes 0.2 µs more per batch because it indexes the view per byte.
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
                if frame[end]:  # tagged fields: none are defined
                    return None
                position = end + 1
            else:
                index, length = _unpack_part(frame, position)
                start = position + 8
                position = end = start + length
            batch = frame[start:end]
            header = admit_repeated_batch(batch)
            if header.attributes & TRANSACTIONAL_BIT:
                return None
            appends.append(PartitionAppend(index, batch, partitions[index], header))
        # The topic and the request end with one zero byte each if they have no tagged fields.
        if frame[position:] != self._tail or position > len(frame):
            return None
        return correlation_id, appends

    def _size_of_partitions(self, request: ProduceRequest) -> int:
        """Return the size of the partitions in the request and of everything after them."""
        size = 2 if self._is_flexible else 0
        for data in request.topic_data[0].partition_data:
            records = len(data.records or b"")
            size += 4 + records + (len(encode_uvarint(records + 1)) + 1 if self._is_flexible else 4)
        return size

    # --- the response

    def encode(self, correlation_id: int, appends: Sequence[PartitionAppend]) -> bytes:
        """Encode the response frame."""
        between = self._between
        if len(appends) == 1 and appends[0].failure is None:
            one, (size, before, pack) = appends[0], self._packing_of_one
            return pack(
                size,
                correlation_id,
                before,
                one.index,
                0,
                one.appended.base_offset,
                one.appended.log_append_time_ms,
                one.log_start_offset,
                between,
                self._after,
            )
        numbers: list[int | bytes] = []
        for one in appends:
            if one.failure is not None:
                return self._with_errors(correlation_id, appends)
            appended = one.appended
            numbers += (one.index, 0, appended.base_offset, appended.log_append_time_ms, one.log_start_offset, between)
        size, before, pack = self._packings.get(len(appends)) or self._packing(len(appends))
        return pack(size, correlation_id, before, *numbers, self._after)

    def _with_errors(self, correlation_id: int, appends: Sequence[PartitionAppend]) -> bytes:
        body = self._head_tags + self._encoded(appends)
        return _ANSWER_HEAD.pack(_ANSWER_HEAD.size - _SIZE_BYTES + len(body), correlation_id) + body

    def _encoded(self, appends: Sequence[PartitionAppend]) -> bytes:
        topic = self._topic
        answered = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[one.response() for one in appends]
        )
        return encode_message(ProduceResponse(responses=[answered]), self._version, self._names)

    def _packing(self, count: int) -> _Packing:
        before = self._words + (bytes((count + 1,)) if self._is_flexible else count.to_bytes(4))
        parts = f"ihqqq{len(self._between)}s" * count
        made = _struct(f">ii{len(before)}s{parts}{len(self._after)}s")
        packing = made.size - _SIZE_BYTES, before, made.pack
        if count <= PACKINGS_MAX:
            self._packings[count] = packing
        return packing


class _DeferredResponse(DeferredFrame):
    """A response frame that is encoded when the outcome of all batches is known."""

    __slots__ = ("_appends", "_correlation_id", "_template")

    def __init__(self, template: Template, correlation_id: int, appends: Sequence[PartitionAppend]) -> None:
        self.frame = None
        self._call = None
        self._template = template
        self._correlation_id = correlation_id
        self._appends = appends

    def encode(self) -> None:
        self.complete(self._template.encode(self._correlation_id, self._appends))


class ProduceTemplateCache:
    """The Produce template of one connection.

    It is created after two successive requests with the same version, topic and acks.
    """

    __slots__ = ("_target", "_template")

    is_produce = True

    def __init__(self) -> None:
        self._template: Template | None = None
        self._target: object = None

    def with_throttle_time(self, framed: bytes, version: int, throttle_ms: int) -> bytes:
        # The throttle time is the last field. Only the tagged fields of a flexible response are after it, one byte.
        at = len(framed) - (5 if version >= PRODUCE.first_flexible else 4)
        return framed[:at] + throttle_ms.to_bytes(4) + framed[at + 4 :]

    def answer(self, frame: memoryview) -> bytes | DeferredFrame | None:
        """Append the batches of a request, or return None, without effect, if the request must be decoded.

        The result is the response frame, complete or deferred.
        """
        template = self._template
        if template is None or len(frame) > FRAME_BYTES_MAX:
            return None
        # Compare every revision of `Admitted` here: a method of `Admitted` would take as long as ten comparisons.
        admitted = template.admitted
        access = admitted.access
        if admitted.topic.revision != admitted.topic_revision or (
            access is not None and access.revision != admitted.access_revision
        ):
            self._template = None
            return None
        try:
            parsed = template.parse(frame)
        except (KafkaError, StorageError, WireError, struct.error, IndexError):
            return None
        if parsed is None:
            return None
        correlation_id, appends = parsed
        waiting: Sequence[PartitionAppend]
        if len(appends) == 1:
            try:
                waiting = () if appends[0].append_to_log(validate_on_loop) else appends
            except TooLongForLoop:
                return None
        else:
            now_ms = template.clock.now_ms()
            if not _are_light(appends, now_ms):
                return None
            waiting = [one for one in appends if not one.append_to_log(validate_on_loop, now_ms)]
        if not waiting:
            return template.encode(correlation_id, appends)
        later = _DeferredResponse(template, correlation_id, appends)
        when_settled(waiting, template.timeout_ms, later.encode)
        return later

    def update(
        self, context: Context, frame: memoryview, request: ProduceRequest, response: ProduceResponse | None
    ) -> None:
        """Create a template from a decoded request if version, topic and acks are those of the previous request."""
        self._template = None
        version = context.api_version
        if version < FIRST_VERSION or len(request.topic_data) != 1 or request.transactional_id is not None:
            return
        [asked] = request.topic_data
        target = (version, asked.name, asked.topic_id, request.acks)
        # If a connection alternates between topics, creating templates takes more time than they save.
        is_repeated, self._target = target == self._target, target
        if not is_repeated or (response is not None and _has_error(response)):
            return
        found = admitted(context, asked)
        if found is not None:
            self._template = Template(context, frame, request, found)


def _are_light(appends: Sequence[PartitionAppend], now_ms: int) -> bool:
    """Whether all batches can be validated without blocking the event loop."""
    settings = appends[0].partition.settings
    is_plain, latest_ms = settings.is_plain, now_ms + settings.timestamp_after_max_ms
    for one in appends:
        header = one.header
        if not (is_plain and NO_TIMESTAMP < header.max_timestamp <= latest_ms) and not is_light(
            header, settings, now_ms
        ):
            return False
    return True


@lru_cache(STRUCTS_MAX)
def _struct(format: str) -> struct.Struct:
    return struct.Struct(format)


def _has_error(response: ProduceResponse) -> bool:
    return any(
        answer.error_code != ErrorCode.NONE for topic in response.responses for answer in topic.partition_responses
    )

"""Templates: a cached parse and a cached answer for the commonest request there is, the one before with other records.

A producer sends the same bytes again and again except for the batches and the partitions they go to, and gets the same
answer except for a few numbers per partition. A template keeps what is equal: the bytes before the partitions, the
topic, and the answer around its numbers. It replaces decoding and encoding, nothing else: admission of the batches,
append and wait are those of `admission.py` and `append.py`. A request that does not fit is decoded.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from kwire.broker.batch_validation import TooLongForLoop, is_light, validate_here
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context, LaterFrame
from kwire.handlers.produce.admission import FIRST_ZSTD_VERSION, Admitted, admit_repeated_batch
from kwire.handlers.produce.append import PartitionAppend, when_settled
from kwire.wire.codec import encode_message
from kwire.wire.errors import WireError
from kwire.wire.messages.produce import PRODUCE, ProduceRequest, ProduceResponse, TopicProduceResponse
from kwire.wire.varint import decode_uvarint, encode_uvarint
from storage.errors import StorageError
from storage.format import NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.log import Appended

# From version 5 on the numbers that differ stand side by side in the answer; here every codec is allowed besides.
FIRST_VERSION = FIRST_ZSTD_VERSION
# Requests with more partitions than this are decoded: the count in their answer would take more than one byte.
PARTITIONS_MAX = 100
# Larger requests are decoded, and handled in chunks.
FRAME_BYTES_MAX = 4 * 1024 * 1024
# A template keeps the structs of answers of up to this many partitions, about 200 bytes for each partition: a node has
# many connections. The structs of larger answers are shared by all of them.
PACKINGS_MAX = 16
STRUCTS_MAX = 256

# A partition's numbers in an answer: index, error code, base offset, append time, log start.
_NUMBERS = struct.Struct(">ihqqq")
# Numbers that no real answer has, to find their place in an encoded one.
_MARKS = (0x01020304, 0, 0x0102030405060708, 0x1112131415161718, 0x2122232425262728)
# The size of an answer and the correlation id of its request.
_ANSWER_HEAD = struct.Struct(">ii")
_SIZE_BYTES = 4
_unpack_call = struct.Struct(">i").unpack_from
# A partition's index and the length of its batch, unsigned: negative numbers become too large, and are refused.
_unpack_part = struct.Struct(">II").unpack_from
# Nearly all lengths take up to three bytes, and no batch is so short that these would not be there.
_unpack_flexible_part = struct.Struct(">IBBB").unpack_from
# API key, version and correlation id of a frame.
_HEAD_BYTES = 8

# How an answer is packed: its size, the bytes before the first partition, and the packing of both and all the rest.
_Packing = tuple[int, bytes, Callable[..., bytes]]


class Template:
    """One form of request to one topic, with acks, and of its answer. It never changes."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_call",
        "_count_bytes",
        "_head_tags",
        "_is_flexible",
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

    def __init__(self, context: Context, frame: memoryview, request: ProduceRequest, admitted: Admitted) -> None:
        version = context.api_version
        self.admitted = admitted
        self.clock: Clock = context.services.clock
        self.timeout_ms = request.timeout_ms
        self._topic = admitted.topic
        self._partitions = admitted.topic.partitions
        self._version = version
        self._is_flexible = is_flexible = version >= PRODUCE.first_flexible
        self._count_bytes = 1 if is_flexible else 4
        # The header of a flexible answer ends with its own, empty, tags.
        self._head_tags = bytes(1 if is_flexible else 0)
        # The request: API key and version as one number, what is between the correlation id and the count of
        # partitions, where the partitions begin, and what follows the last one.
        (self._call,) = _unpack_call(frame)
        self._start = len(frame) - self._size_of_partitions(request)
        self._before = before = frame[_HEAD_BYTES : self._start - self._count_bytes].tobytes()
        self._unpack_head = struct.Struct(f">ii{len(before)}s{'B' if is_flexible else 'i'}").unpack_from
        self._tail = bytes(2 if is_flexible else 0)
        # The answer: what is before the count of partitions, after the numbers of each, and after the last.
        index, _, base_offset, append_time_ms, log_start_offset = _MARKS
        marked = PartitionAppend(
            index,
            memoryview(b""),
            appended=Appended(base_offset, base_offset, append_time_ms, False),
            log_start_offset=log_start_offset,
        )
        front, _, after = self._encoded([marked]).partition(_NUMBERS.pack(*_MARKS))
        self._words = self._head_tags + front[: -self._count_bytes]
        # Topic tags, throttle time and the answer's own tags end it; the bytes before them belong to each partition.
        end_bytes = 1 + 4 + 1 if is_flexible else 4
        self._between, self._after = after[:-end_bytes], after[-end_bytes:]
        # The packing of answers without errors, by their number of partitions.
        self._packings: dict[int, _Packing] = {}
        self._packing_of_one = self._packing(1)

    # --- the request

    def parse(self, frame: memoryview) -> tuple[int, list[PartitionAppend]] | None:
        """The correlation id and the admitted batches of a request; None if the template does not fit.

        Raises what the bytes make it raise: then it does not fit either.
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
            header = admit_repeated_batch(batch)
            if header.attributes & TRANSACTIONAL_BIT:
                return None
            appends.append(PartitionAppend(index, batch, partitions[index], header))
        # Topic and request end here; without unknown tags each leaves one zero byte.
        if frame[position:] != self._tail or position > len(frame):
            return None
        return correlation_id, appends

    def _size_of_partitions(self, request: ProduceRequest) -> int:
        """The bytes of the partitions and of everything after them in the request."""
        size = 2 if self._is_flexible else 0
        for data in request.topic_data[0].partition_data:
            records = len(data.records or b"")
            size += 4 + records + (len(encode_uvarint(records + 1)) + 1 if self._is_flexible else 4)
        return size

    # --- the answer

    def encode(self, correlation_id: int, appends: Sequence[PartitionAppend]) -> bytes:
        """The frame of the answer."""
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
        return encode_message(ProduceResponse(responses=[answered]), self._version)

    def _packing(self, count: int) -> _Packing:
        before = self._words + (bytes((count + 1,)) if self._is_flexible else count.to_bytes(4))
        parts = f"ihqqq{len(self._between)}s" * count
        made = _struct(f">ii{len(before)}s{parts}{len(self._after)}s")
        packing = made.size - _SIZE_BYTES, before, made.pack
        if count <= PACKINGS_MAX:
            self._packings[count] = packing
        return packing


class _LaterAnswer(LaterFrame):
    """The frame of an answer that is encoded when the outcome of all batches is known."""

    __slots__ = ("_appends", "_correlation_id", "_template")

    def __init__(self, template: Template, correlation_id: int, appends: Sequence[PartitionAppend]) -> None:
        self.frame = None
        self._call = None
        self._template = template
        self._correlation_id = correlation_id
        self._appends = appends

    def encode(self) -> None:
        self.complete(self._template.encode(self._correlation_id, self._appends))


class RepeatedProduce:
    """The template of one connection, made when a request comes for the second time in a row."""

    __slots__ = ("_target", "_template")

    def __init__(self) -> None:
        self._template: Template | None = None
        self._target: object = None

    def answer(self, frame: memoryview) -> bytes | LaterFrame | None:
        """Append the batches of a request and return the frame of its answer. None: nothing has been done."""
        template = self._template
        if template is None or len(frame) > FRAME_BYTES_MAX:
            return None
        # All revisions of `Admitted`, compared here: a method would cost as much as ten of them.
        admitted = template.admitted
        if admitted.topic.revision != admitted.topic_revision:
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
                waiting = () if appends[0].append_to_log(validate_here) else appends
            except TooLongForLoop:
                return None
        else:
            now_ms = template.clock.now_ms()
            if not _are_light(appends, now_ms):
                return None
            waiting = [one for one in appends if not one.append_to_log(validate_here, now_ms)]
        if not waiting:
            return template.encode(correlation_id, appends)
        later = _LaterAnswer(template, correlation_id, appends)
        when_settled(waiting, template.timeout_ms, later.encode)
        return later

    def learn(
        self, context: Context, frame: memoryview, request: ProduceRequest, response: ProduceResponse | None
    ) -> None:
        """Make a template of a request that was decoded, if it has the form of the one before."""
        self._template = None
        version = context.api_version
        if version < FIRST_VERSION or len(request.topic_data) != 1 or request.transactional_id is not None:
            return
        [asked] = request.topic_data
        target = (version, asked.name, asked.topic_id, request.acks)
        # A template costs more than it saves on a connection that writes to several topics in turn.
        is_repeated, self._target = target == self._target, target
        if not is_repeated or (response is not None and _has_error(response)):
            return
        topics = context.services.topics
        topic = topics.get(asked.name) if asked.name else topics.get_by_id(asked.topic_id)
        if topic is not None and not topic.is_internal and not topic.settings.is_event_topic:
            self._template = Template(context, frame, request, Admitted(topic, topic.revision))


def _are_light(appends: Sequence[PartitionAppend], now_ms: int) -> bool:
    """Whether all of them can be appended in one go, as far as their records have to be read."""
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

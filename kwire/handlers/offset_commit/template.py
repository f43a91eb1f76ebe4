"""Templates: a cached parse and a cached answer for an OffsetCommit that repeats the one before with other offsets.

A member commits the same partitions again and again. Its requests differ only in offsets and leader epochs, and their
answers only in the correlation id, unless there is an error. A template replaces decoding, the search for topics and
encoding, nothing else: the coordinator gets the same command. A request that does not fit is decoded.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

from kwire.broker.topics import Topic
from kwire.coordinator.group.commands import NO_LEADER_EPOCH, OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.context import Context, LaterFrame
from kwire.handlers.offset_commit.handler import FIRST_VERSION_OF_TOPIC_IDS, command_of
from kwire.wire.codec import encode_message
from kwire.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

# Larger requests are decoded: a node has many connections, and each keeps the bytes of its template.
PARTITIONS_MAX = 80
FRAME_BYTES_MAX = 16 * 1024
STRUCTS_MAX = 256

FIRST_VERSION_OF_LEADER_EPOCHS = 6

# API key, version and correlation id of a frame.
_HEAD_BYTES = 8
_unpack_call = struct.Struct(">i").unpack_from
_pack_answer_head = struct.Struct(">ii").pack
_CORRELATION_ID_BYTES = 4
# Numbers that no real request has, to find their places in an encoded one.
_OFFSET_MARK = 0x0102030405060708
_EPOCH_MARK = 0x11121314


class Template:
    """One form of request, and of its answer. It never changes."""

    __slots__ = (
        "_answer_body",
        "_answer_size",
        "_are_epochs_sent",
        "_ask",
        "_call",
        "_constants",
        "_partitions",
        "_request",
        "_stride",
        "_topics",
        "_unpack",
        "_version",
        "assumed",
        "size_bytes",
    )

    def __init__(self, context: Context, frame: memoryview, request: OffsetCommitRequest, topics: list[Topic]) -> None:
        """`topics` are the topics of the request, in its order. Raises ValueError for a request without a template."""
        version = context.api_version
        self._version = version
        self._ask = context.services.groups.ask
        self._request = request
        self.size_bytes = len(frame)
        # Every topic with its revision when its partitions were found to exist.
        self.assumed = [(topic, topic.revision) for topic in topics]
        self._topics = [
            (asked.name, asked.topic_id, [one.partition_index for one in asked.partitions]) for asked in request.topics
        ]
        # Of each partition what a command needs besides its offset and its leader epoch.
        self._partitions = [
            (topic.name, one.partition_index, one.committed_metadata or "", topic.topic_id)
            for topic, asked in zip(topics, request.topics, strict=True)
            for one in asked.partitions
        ]
        # The request: API key and version as one number, and the bytes between the numbers that change.
        (self._call,) = _unpack_call(frame)
        self._are_epochs_sent = version >= FIRST_VERSION_OF_LEADER_EPOCHS
        numbers = "qi" if self._are_epochs_sent else "q"
        self._stride = len(numbers) + 1
        constants = self._constants_of(frame, request)
        self._unpack = _struct(">ii" + numbers.join(f"{len(one)}s" for one in constants)).unpack
        self._constants = tuple(constants)
        # The answer without errors.
        self._answer_body = self._encoded([ErrorCode.NONE] * len(self._partitions))
        self._answer_size = _CORRELATION_ID_BYTES + len(self._answer_body)

    def _constants_of(self, frame: memoryview, request: OffsetCommitRequest) -> list[bytes]:
        version = self._version
        encoded = encode_message(request, version)
        head = frame[_HEAD_BYTES : len(frame) - len(encoded)].tobytes()
        if frame[_HEAD_BYTES + len(head) :] != encoded:
            raise ValueError("the request is encoded in another way than ours")
        mark = struct.pack(">qi", _OFFSET_MARK, _EPOCH_MARK) if self._are_epochs_sent else _OFFSET_MARK.to_bytes(8)
        constants = encode_message(_marked(request), version).split(mark)
        if len(constants) != len(self._partitions) + 1:
            raise ValueError("a name or metadata contains the mark")
        return [head + constants[0], *constants[1:]]

    def answer(self, frame: memoryview) -> bytes | LaterFrame | None:
        """Commit the offsets of a request and return the frame of its answer. None: the template does not fit."""
        values = self._unpack(frame)
        stride = self._stride
        if values[0] != self._call or values[2::stride] != self._constants:
            return None
        offsets = values[3::stride]
        epochs = values[4::stride] if self._are_epochs_sent else (NO_LEADER_EPOCH,) * len(offsets)
        answer = _Answer(self, values[1])
        changed = zip(self._partitions, offsets, epochs, strict=True)
        command = command_of(
            self._request,
            self._version,
            [
                OffsetToCommit(topic, index, offset, epoch, metadata, topic_id)
                for (topic, index, metadata, topic_id), offset, epoch in changed
            ],
        )
        self._ask(command, answer.put)
        return answer.frame or answer

    def encode(self, correlation_id: int, errors: Sequence[ErrorCode]) -> bytes:
        """The frame of the answer."""
        if any(errors):
            body = self._encoded(errors)
            return _pack_answer_head(_CORRELATION_ID_BYTES + len(body), correlation_id) + body
        return _pack_answer_head(self._answer_size, correlation_id) + self._answer_body

    def _encoded(self, errors: Sequence[ErrorCode]) -> bytes:
        left = iter(errors)
        topics = [
            OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=next(left)) for index in indexes
                ],
            )
            for name, topic_id, indexes in self._topics
        ]
        # The header of a flexible answer ends with its own, empty, tags.
        head_tags = bytes(self._version >= OFFSET_COMMIT.first_flexible)
        return head_tags + encode_message(OffsetCommitResponse(topics=topics), self._version)


class _Answer(LaterFrame):
    """The frame of an answer that is encoded when the coordinator has decided."""

    __slots__ = ("_correlation_id", "_template")

    def __init__(self, template: Template, correlation_id: int) -> None:
        self.frame = None
        self._call = None
        self._template = template
        self._correlation_id = correlation_id

    def put(self, errors: Sequence[ErrorCode]) -> None:
        self.complete(self._template.encode(self._correlation_id, errors))


class RepeatedOffsetCommit:
    """The template of one connection, made when a request comes for the second time in a row."""

    __slots__ = ("_form", "_template")

    def __init__(self) -> None:
        self._template: Template | None = None
        self._form: object = None

    def answer(self, frame: memoryview) -> bytes | LaterFrame | None:
        """Commit the offsets of a request and return the frame of its answer. None: nothing has been done."""
        template = self._template
        if template is None or len(frame) != template.size_bytes:
            return None
        for topic, revision in template.assumed:
            if topic.revision != revision:
                self._template = None
                return None
        return template.answer(frame)

    def learn(
        self, context: Context, frame: memoryview, request: OffsetCommitRequest, response: OffsetCommitResponse | None
    ) -> None:
        """Make a template of a request that was decoded, if it has the form of the one before."""
        self._template = None
        if len(frame) > FRAME_BYTES_MAX:
            return
        form = _form(context, request)
        is_repeated, self._form = form == self._form, form
        topics = _topics_of(context, request) if is_repeated else []
        if topics:
            try:
                self._template = Template(context, frame, request, topics)
            except ValueError:
                self._form = None


def _form(context: Context, request: OffsetCommitRequest) -> object:
    """Everything in a request but its offsets and leader epochs."""
    partitions = [
        (asked.name, asked.topic_id, [(one.partition_index, one.committed_metadata) for one in asked.partitions])
        for asked in request.topics
    ]
    return context.api_version, request.group_id, request.generation_id_or_member_epoch, request.member_id, partitions


def _topics_of(context: Context, request: OffsetCommitRequest) -> list[Topic]:
    """The topics of a request; none unless all of them, and all partitions, exist and are few."""
    topics = context.services.topics
    are_topics_named_by_id = context.api_version >= FIRST_VERSION_OF_TOPIC_IDS
    found = []
    partition_count = 0
    for asked in request.topics:
        topic = topics.get_by_id(asked.topic_id) if are_topics_named_by_id else topics.get(asked.name)
        partition_count += len(asked.partitions)
        if topic is None or partition_count > PARTITIONS_MAX:
            return []
        if not all(0 <= one.partition_index < len(topic.partitions) for one in asked.partitions):
            return []
        found.append(topic)
    return found if partition_count else []


def _marked(request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The request with marks in the places of the numbers that change."""
    topics = [
        OffsetCommitRequestTopic(
            name=asked.name,
            topic_id=asked.topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=one.partition_index,
                    committed_offset=_OFFSET_MARK,
                    committed_leader_epoch=_EPOCH_MARK,
                    committed_metadata=one.committed_metadata,
                )
                for one in asked.partitions
            ],
        )
        for asked in request.topics
    ]
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


@lru_cache(STRUCTS_MAX)
def _struct(format: str) -> struct.Struct:
    return struct.Struct(format)

"""Templates of OffsetCommit: cached parsing and encoding for requests that repeat the previous one with other offsets.

A member usually commits offsets of the same partitions again. Its requests differ only in offsets and leader epochs.
The responses without errors differ only in the correlation id. A template replaces only decoding, the lookup of topics
and encoding. The coordinator receives the same command as without a template. A request that does not fit the template
is decoded. So is the first request after any change of rights. If nothing but the append has to be done, the
coordinator's `RepeatedCommit` makes the same decision in fewer steps.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

from kwire.access.acl import Operation
from kwire.broker.topics.topics import Topic
from kwire.coordinator.group.commands import NO_LEADER_EPOCH, CommitOffsets, OffsetToCommit
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.offsets.repeated_commit import RepeatedCommit
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.offset_commit.handler import FIRST_VERSION_OF_TOPIC_IDS, command_of
from kwire.handlers.shared.context import Context, DeferredFrame
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

# Larger requests are decoded. The limits are low, because a node has many connections and each stores its template.
PARTITIONS_MAX = 80
FRAME_BYTES_MAX = 16 * 1024
STRUCTS_MAX = 256

FIRST_VERSION_OF_THROTTLE_TIMES = 3
FIRST_VERSION_OF_LEADER_EPOCHS = 6

# API key, version and correlation id of a frame.
_HEAD_BYTES = 8
_unpack_call = struct.Struct(">i").unpack_from
_pack_answer_head = struct.Struct(">ii").pack
_ANSWER_HEAD_BYTES = 8
_CORRELATION_ID_BYTES = 4
# Placeholders that mark the positions of the numbers in an encoded request.
_OFFSET_PLACEHOLDER = 0x0102030405060708
_EPOCH_PLACEHOLDER = 0x11121314


class Template:
    """The template of requests that commit the same partitions, and of their responses. Immutable."""

    __slots__ = (
        "_answer_body",
        "_answer_size",
        "_are_epochs_sent",
        "_ask",
        "_call",
        "_constants",
        "_indexes",
        "_metadata",
        "_names",
        "_no_epochs",
        "_repeated",
        "_request",
        "_stride",
        "_topic_ids",
        "_topic_names",
        "_topics",
        "_unpack",
        "_version",
        "access",
        "access_revision",
        "assumed",
        "size_bytes",
    )

    def __init__(self, context: Context, frame: memoryview, request: OffsetCommitRequest, topics: list[Topic]) -> None:
        """`topics` are the topics of `request`, in the same order. Raises ValueError if no template is possible.

        The client has the rights that the request needs.
        """
        version = context.api_version
        self._version = version
        self._names = context.views.names
        groups = context.groups.coordinator(Operation.READ, request.group_id)
        self._ask = groups.submit
        self._request = request
        self.size_bytes = len(frame)
        # The client's rights, and their revision when they were checked. None if they are unrestricted.
        self.access = None if context.access.is_unrestricted else context.access
        self.access_revision = context.access.revision
        # Every topic, and its revision when its partitions were checked to exist.
        self.assumed = [(topic, topic.revision) for topic in topics]
        self._topics = [
            (asked.name, asked.topic_id, [one.partition_index for one in asked.partitions]) for asked in request.topics
        ]
        # The constant fields of the command's offsets, one list per field: all except offset and leader epoch.
        partitions = [
            (topic.name, one.partition_index, one.committed_metadata or "", topic.topic_id)
            for topic, asked in zip(topics, request.topics, strict=True)
            for one in asked.partitions
        ]
        self._topic_names, self._indexes, self._metadata, self._topic_ids = map(list, zip(*partitions, strict=True))
        self._no_epochs = (NO_LEADER_EPOCH,) * len(partitions)
        self._repeated = _repeated_commit(groups, command_of(request, version, self._offsets([0] * len(partitions))))
        # Of the request: API key and version as one number, and the bytes between the variable numbers.
        (self._call,) = _unpack_call(frame)
        self._are_epochs_sent = version >= FIRST_VERSION_OF_LEADER_EPOCHS
        numbers = "qi" if self._are_epochs_sent else "q"
        self._stride = len(numbers) + 1
        constants = self._constants_of(frame, request)
        self._unpack = _struct(">ii" + numbers.join(f"{len(one)}s" for one in constants)).unpack
        self._constants = tuple(constants)
        # The body of a response without errors.
        self._answer_body = self._encoded([ErrorCode.NONE] * len(self._topic_names))
        self._answer_size = _CORRELATION_ID_BYTES + len(self._answer_body)

    def _constants_of(self, frame: memoryview, request: OffsetCommitRequest) -> list[bytes]:
        version, names = self._version, self._names
        encoded = encode_message(request, version, names)
        head = frame[_HEAD_BYTES : len(frame) - len(encoded)].tobytes()
        if frame[_HEAD_BYTES + len(head) :] != encoded:
            raise ValueError("the client encodes the request in another way than kwire")
        offset_bytes = _OFFSET_PLACEHOLDER.to_bytes(8)
        placeholder = offset_bytes + _EPOCH_PLACEHOLDER.to_bytes(4) if self._are_epochs_sent else offset_bytes
        constants = encode_message(_with_placeholders(request), version, names).split(placeholder)
        if len(constants) != len(self._topic_names) + 1:
            raise ValueError("a name or metadata contains the placeholder")
        return [head + constants[0], *constants[1:]]

    def answer(self, frame: memoryview) -> bytes | DeferredFrame | None:
        """Commit the offsets of a request and return the response frame. Return None if the request does not fit."""
        values = self._unpack(frame)
        stride = self._stride
        if values[0] != self._call or values[2::stride] != self._constants:
            return None
        epochs = values[4::stride] if self._are_epochs_sent else self._no_epochs
        offsets = values[3::stride]
        repeated = self._repeated
        if repeated is None or not repeated.commit(offsets, epochs):
            answer = _DeferredResponse(self, values[1])
            self._ask(command_of(self._request, self._version, self._offsets(offsets, epochs)), answer.complete_with)
        elif repeated.is_committed:
            return _pack_answer_head(self._answer_size, values[1]) + self._answer_body
        else:
            answer = _DeferredResponse(self, values[1])
            repeated.on_committed(answer.complete_committed)
        return answer.frame or answer

    def _offsets(self, offsets: Sequence[int], epochs: Sequence[int] | None = None) -> list[OffsetToCommit]:
        """Return the offsets of a command. Without `epochs`, there are no leader epochs."""
        epochs = self._no_epochs if epochs is None else epochs
        return list(
            map(OffsetToCommit, self._topic_names, self._indexes, offsets, epochs, self._metadata, self._topic_ids)
        )

    def encode(self, correlation_id: int, errors: Sequence[ErrorCode]) -> bytes:
        """Encode the response frame."""
        if any(errors):
            body = self._encoded(errors)
            return _pack_answer_head(_CORRELATION_ID_BYTES + len(body), correlation_id) + body
        return _pack_answer_head(self._answer_size, correlation_id) + self._answer_body

    def encode_committed(self, correlation_id: int, error: KafkaError | None) -> bytes:
        """Encode the response frame of a repeated commit, whose records are committed unless there is an error."""
        if error is None:
            return _pack_answer_head(self._answer_size, correlation_id) + self._answer_body
        return self.encode(correlation_id, [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(self._topic_names))

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
        # The header of a flexible response ends with its tagged fields, which are empty.
        head_tags = bytes(self._version >= OFFSET_COMMIT.first_flexible)
        return head_tags + encode_message(OffsetCommitResponse(topics=topics), self._version, self._names)


class _DeferredResponse(DeferredFrame):
    """A response frame that is encoded when the coordinator has replied."""

    __slots__ = ("_correlation_id", "_template")

    def __init__(self, template: Template, correlation_id: int) -> None:
        self.frame = None
        self._call = None
        self._template = template
        self._correlation_id = correlation_id

    def complete_with(self, errors: Sequence[ErrorCode]) -> None:
        self.complete(self._template.encode(self._correlation_id, errors))

    def complete_committed(self, error: KafkaError | None) -> None:
        self.complete(self._template.encode_committed(self._correlation_id, error))


class OffsetCommitTemplateCache:
    """The OffsetCommit template of one connection. It is created after two successive requests of the same form.

    The form of a request is its version, group, generation, member, partitions and offset metadata.
    """

    __slots__ = ("_form", "_template")

    is_produce = False

    def __init__(self) -> None:
        self._template: Template | None = None
        self._form: object = None

    def with_throttle_time(self, framed: bytes, version: int, throttle_ms: int) -> bytes:
        if version < FIRST_VERSION_OF_THROTTLE_TIMES:
            return framed
        # The throttle time is the first field after the header.
        at = _ANSWER_HEAD_BYTES + (version >= OFFSET_COMMIT.first_flexible)
        return framed[:at] + throttle_ms.to_bytes(4) + framed[at + 4 :]

    def answer(self, frame: memoryview) -> bytes | DeferredFrame | None:
        """Commit the offsets of a request, or return None, without effect, if the request must be decoded.

        The result is the response frame, complete or deferred.
        """
        template = self._template
        if template is None or len(frame) != template.size_bytes:
            return None
        access = template.access
        if access is not None and access.revision != template.access_revision:
            self._template = None
            return None
        for topic, revision in template.assumed:
            if topic.revision != revision:
                self._template = None
                return None
        return template.answer(frame)

    def update(
        self, context: Context, frame: memoryview, request: OffsetCommitRequest, response: OffsetCommitResponse | None
    ) -> None:
        """Create a template from a decoded request if it has the same form as the previous request."""
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
    """Return the fields in which two requests must agree before a template is created."""
    partitions = [
        (asked.name, asked.topic_id, [(one.partition_index, one.committed_metadata) for one in asked.partitions])
        for asked in request.topics
    ]
    return context.api_version, request.group_id, request.generation_id_or_member_epoch, request.member_id, partitions


def _topics_of(context: Context, request: OffsetCommitRequest) -> list[Topic]:
    """Return the topics of a request.

    The list is empty if a topic does not exist or lacks a partition, the client lacks a right, or the request is too
    large.
    """
    topics = context.topics
    if not context.groups.allows(Operation.READ, request.group_id):
        return []
    are_topics_named_by_id = context.api_version >= FIRST_VERSION_OF_TOPIC_IDS
    found = []
    partition_count = 0
    for asked in request.topics:
        try:
            if are_topics_named_by_id:
                topic = topics.get_by_id(Operation.READ, asked.topic_id)
            else:
                topic = topics.get(Operation.READ, asked.name)
        except KafkaError:
            return []
        partition_count += len(asked.partitions)
        if topic is None or partition_count > PARTITIONS_MAX:
            return []
        if not all(0 <= one.partition_index < len(topic.partitions) for one in asked.partitions):
            return []
        found.append(topic)
    return found if partition_count else []


def _repeated_commit(groups: GroupCoordinator, command: CommitOffsets) -> RepeatedCommit | None:
    try:
        return groups.repeated_commit(command)
    except ValueError:
        return None


def _with_placeholders(request: OffsetCommitRequest) -> OffsetCommitRequest:
    """Return a copy of the request with placeholders for offsets and leader epochs."""
    topics = [
        OffsetCommitRequestTopic(
            name=asked.name,
            topic_id=asked.topic_id,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=one.partition_index,
                    committed_offset=_OFFSET_PLACEHOLDER,
                    committed_leader_epoch=_EPOCH_PLACEHOLDER,
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

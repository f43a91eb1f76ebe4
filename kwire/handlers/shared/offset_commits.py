"""The common part of OffsetCommit and TxnOffsetCommit: select the offsets that can be committed and build the response.

Each topic needs READ. Most requests name a few partitions and are handled without a pause. A request with more than
ELEMENTS_PER_CHUNK topics and partitions is handled in chunks, with one append for at most OFFSETS_PER_COMMIT_MAX
offsets.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from kwire.access.acl import Operation
from kwire.broker.topics.topics import Topic
from kwire.concurrency.chunking import ELEMENTS_PER_CHUNK, eager, spread, spread_nested, yield_to_loop
from kwire.coordinator.client_requests import resolved_answer
from kwire.coordinator.group.commands import OffsetToCommit
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context

# Maximum number of offsets in one command. The coordinator handles a command without a pause and writes it as one
# batch, so larger requests are split.
OFFSETS_PER_COMMIT_MAX = 1_000

# Attributes of enumerations are slow, and commits are frequent.
READ = Operation.READ

R = TypeVar("R")


class RequestedPartition(Protocol):
    """One partition of an OffsetCommit or TxnOffsetCommit request."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class RequestedTopic(Protocol):
    """One topic of an OffsetCommit or TxnOffsetCommit request."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[RequestedPartition]: ...


class CommitApi(NamedTuple):
    """The response classes of an API, and the first version that names topics by id."""

    response: type[Any]
    topic: type[Any]
    partition: type[Any]
    first_version_of_topic_ids: int


class Ask(Protocol):
    """Sends offsets to the coordinator. `shape` converts the coordinator's errors, one per offset, to the result."""

    def __call__(self, offsets: list[OffsetToCommit], shape: Callable[[list[ErrorCode]], R], /) -> R | Awaitable[R]: ...


def commit(context: Context, topics: Sequence[RequestedTopic], api: CommitApi, ask: Ask) -> Any | Awaitable[Any]:
    """Commit the offsets of existing partitions through the coordinator. Return the response or an awaitable of it."""
    requested = _RequestedOffsets(context, api)
    elements = len(topics)
    for asked in topics:
        elements += len(asked.partitions)
    if elements > ELEMENTS_PER_CHUNK:
        return eager(_commit_in_chunks(requested, topics, api, ask))
    add = requested.add
    answers = []
    for asked in topics:
        topic = requested.find(asked)
        partitions = [add(topic, one) for one in asked.partitions]
        answers.append(api.topic(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    response = api.response(topics=answers)
    if not requested.offsets:
        return response
    return ask(requested.offsets, partial(_with_errors, response, requested.responses))


def refuse(topics: Sequence[RequestedTopic], api: CommitApi, error: ErrorCode) -> Any | Awaitable[Any]:
    """Return the response to a request that is refused as a whole, or an awaitable of it.

    Each partition has the error.
    """
    return eager(_refuse(topics, api, error))


async def _refuse(topics: Sequence[RequestedTopic], api: CommitApi, error: ErrorCode) -> Any:
    answers = [api.topic(name=asked.name, topic_id=asked.topic_id, partitions=[]) async for asked in spread(topics)]
    pairs = zip(topics, answers, strict=True)
    async for (_, answer), one in spread_nested(pairs, lambda pair: pair[0].partitions):
        answer.partitions.append(api.partition(partition_index=one.partition_index, error_code=error))
    return api.response(topics=answers)


async def _commit_in_chunks(
    requested: "_RequestedOffsets", topics: Sequence[RequestedTopic], api: CommitApi, ask: Ask
) -> Any:
    answers = [api.topic(name=asked.name, topic_id=asked.topic_id, partitions=[]) async for asked in spread(topics)]
    resolved = ((requested.find(asked), asked, answer) for asked, answer in zip(topics, answers, strict=True))
    async for (topic, _, answer), one in spread_nested(resolved, lambda each: each[1].partitions):
        answer.partitions.append(requested.add(topic, one))
    for first in range(0, len(requested.offsets), OFFSETS_PER_COMMIT_MAX):
        if first:
            await yield_to_loop()
        some = slice(first, first + OFFSETS_PER_COMMIT_MAX)
        errors = await resolved_answer(ask(requested.offsets[some], _unchanged))
        _set_errors(requested.responses[some], errors)
    return api.response(topics=answers)


class _RequestedOffsets:
    """The offsets of a request that are sent to the coordinator. `responses` has the partition response of each."""

    __slots__ = ("_are_topics_named_by_id", "_make_response", "_not_found", "_topics", "offsets", "responses")

    def __init__(self, context: Context, api: CommitApi) -> None:
        self._topics = context.topics
        self._make_response = api.partition
        self._are_topics_named_by_id = context.api_version >= api.first_version_of_topic_ids
        self._not_found = (
            ErrorCode.UNKNOWN_TOPIC_ID if self._are_topics_named_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        self.offsets: list[OffsetToCommit] = []
        self.responses: list[Any] = []

    def find(self, asked: RequestedTopic) -> Topic | ErrorCode:
        """Return the topic, or the error of its partitions."""
        try:
            if self._are_topics_named_by_id:
                topic = self._topics.get_by_id(READ, asked.topic_id)
            else:
                topic = self._topics.get(READ, asked.name)
        except KafkaError as error:
            return error.code
        return self._not_found if topic is None else topic

    def add(self, topic: Topic | ErrorCode, asked: RequestedPartition) -> Any:
        """Return the response of a partition. If the partition exists, add its offset; the error is set later."""
        index = asked.partition_index
        if isinstance(topic, ErrorCode):
            return self._make_response(partition_index=index, error_code=topic)
        if not 0 <= index < len(topic.partitions):
            return self._make_response(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        response = self._make_response(partition_index=index, error_code=ErrorCode.NONE)
        self.responses.append(response)
        self.offsets.append(
            OffsetToCommit(
                topic.name,
                index,
                asked.committed_offset,
                asked.committed_leader_epoch,
                asked.committed_metadata or "",
                topic.topic_id,
            )
        )
        return response


def _with_errors(response: R, partitions: Sequence[Any], errors: Sequence[ErrorCode]) -> R:
    _set_errors(partitions, errors)
    return response


def _set_errors(partitions: Sequence[Any], errors: Sequence[ErrorCode]) -> None:
    for partition, error in zip(partitions, errors, strict=True):
        partition.error_code = error


def _unchanged(errors: list[ErrorCode]) -> list[ErrorCode]:
    return errors

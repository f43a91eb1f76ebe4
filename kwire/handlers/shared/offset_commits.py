"""The common part of OffsetCommit and TxnOffsetCommit: which offsets can be committed, and the answer to them.

Most requests name a few partitions and are handled in one go. A request of more than ELEMENTS_PER_TURN elements is
handled in turns, with one append for each OFFSETS_PER_COMMIT_MAX offsets.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from kwire.broker.chunking import ELEMENTS_PER_TURN, eager, next_turn, spread, spread_nested
from kwire.broker.topics import Topic
from kwire.coordinator.asking import settled
from kwire.coordinator.group.commands import OffsetToCommit
from kwire.errors import ErrorCode
from kwire.handlers.context import Context

# More offsets than these are committed in several steps, each an append of its own: the coordinator decides one step
# without a pause, and one batch has to hold it.
OFFSETS_PER_COMMIT_MAX = 1_000

R = TypeVar("R")


class AskedPartition(Protocol):
    """One partition of either request."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class AskedTopic(Protocol):
    """One topic of either request."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[AskedPartition]: ...


class CommitApi(NamedTuple):
    """The classes of an API's response, and the version since which topics are named by their ids."""

    response: type[Any]
    topic: type[Any]
    partition: type[Any]
    first_version_of_topic_ids: int


class Ask(Protocol):
    """Asks the coordinator to commit; its errors, one for each offset, are given to `shape`."""

    def __call__(self, offsets: list[OffsetToCommit], shape: Callable[[list[ErrorCode]], R], /) -> R | Awaitable[R]: ...


def commit(context: Context, topics: Sequence[AskedTopic], api: CommitApi, ask: Ask) -> Any | Awaitable[Any]:
    """Have the coordinator commit the offsets of partitions that exist; returns the response, at once or later."""
    resolution = _Resolution(context, api)
    elements = len(topics)
    for asked in topics:
        elements += len(asked.partitions)
    if elements > ELEMENTS_PER_TURN:
        return eager(_commit_in_turns(resolution, topics, api, ask))
    place = resolution.place
    answers = []
    for asked in topics:
        topic = resolution.find(asked)
        partitions = [place(topic, one) for one in asked.partitions]
        answers.append(api.topic(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    response = api.response(topics=answers)
    if not resolution.offsets:
        return response
    return ask(resolution.offsets, partial(_filled, response, resolution.places))


async def _commit_in_turns(resolution: "_Resolution", topics: Sequence[AskedTopic], api: CommitApi, ask: Ask) -> Any:
    answers = [api.topic(name=asked.name, topic_id=asked.topic_id, partitions=[]) async for asked in spread(topics)]
    resolved = ((resolution.find(asked), asked, answer) for asked, answer in zip(topics, answers, strict=True))
    async for (topic, _, answer), one in spread_nested(resolved, lambda each: each[1].partitions):
        answer.partitions.append(resolution.place(topic, one))
    for first in range(0, len(resolution.offsets), OFFSETS_PER_COMMIT_MAX):
        if first:
            await next_turn()
        some = slice(first, first + OFFSETS_PER_COMMIT_MAX)
        errors = await settled(ask(resolution.offsets[some], _as_they_are))
        _fill(resolution.places[some], errors)
    return api.response(topics=answers)


class _Resolution:
    """Sorts the partitions of a request: `offsets` are for the coordinator, `places` hold their answers."""

    __slots__ = ("_are_topics_named_by_id", "_make_place", "_not_found", "_topics", "offsets", "places")

    def __init__(self, context: Context, api: CommitApi) -> None:
        self._topics = context.services.topics
        self._make_place = api.partition
        self._are_topics_named_by_id = context.api_version >= api.first_version_of_topic_ids
        self._not_found = (
            ErrorCode.UNKNOWN_TOPIC_ID if self._are_topics_named_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        self.offsets: list[OffsetToCommit] = []
        self.places: list[Any] = []

    def find(self, asked: AskedTopic) -> Topic | None:
        if self._are_topics_named_by_id:
            return self._topics.get_by_id(asked.topic_id)
        return self._topics.get(asked.name)

    def place(self, topic: Topic | None, asked: AskedPartition) -> Any:
        """The answer for one partition; that of an offset for the coordinator is filled in later."""
        index = asked.partition_index
        if topic is None:
            return self._make_place(partition_index=index, error_code=self._not_found)
        if not 0 <= index < len(topic.partitions):
            return self._make_place(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        place = self._make_place(partition_index=index, error_code=ErrorCode.NONE)
        self.places.append(place)
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
        return place


def _filled(response: R, places: Sequence[Any], errors: Sequence[ErrorCode]) -> R:
    _fill(places, errors)
    return response


def _fill(places: Sequence[Any], errors: Sequence[ErrorCode]) -> None:
    for place, error in zip(places, errors, strict=True):
        place.error_code = error


def _as_they_are(errors: list[ErrorCode]) -> list[ErrorCode]:
    return errors

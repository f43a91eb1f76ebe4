"""What OffsetCommit and TxnOffsetCommit share: which of the offsets can be committed, and in what steps."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.broker.chunking import next_turn, spread_nested
from kwire.broker.topics import Topic
from kwire.coordinator.asking import settled
from kwire.coordinator.group.commands import OffsetToCommit
from kwire.errors import ErrorCode

# More offsets than these are committed in several steps, each an append of its own: the coordinator decides one step
# without a pause, and one batch has to hold it.
OFFSETS_PER_COMMIT_MAX = 1_000

P = TypeVar("P", bound="Place")


class Place(Protocol):
    """The answer for one partition."""

    error_code: int


class Asked(Protocol):
    """One partition of either request."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class AskedTopic(NamedTuple, Generic[P]):
    """The partitions of one topic, the topic if it exists, and where their answers go."""

    topic: Topic | None
    partitions: Sequence[Asked]
    answers: list[P]


async def offsets_to_commit(
    asked: Iterable[AskedTopic[P]], make_place: Callable[..., P], not_found: ErrorCode
) -> list[tuple[OffsetToCommit, P]]:
    """Fill in an answer for each partition, and return the offsets whose answer the coordinator decides."""
    found: list[tuple[OffsetToCommit, P]] = []
    async for (topic, _, answers), one in spread_nested(asked, lambda asked_topic: asked_topic.partitions):
        place = make_place(partition_index=one.partition_index, error_code=ErrorCode.NONE)
        answers.append(place)
        if topic is None:
            place.error_code = not_found
        elif not 0 <= one.partition_index < len(topic.partitions):
            place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            offset = OffsetToCommit(
                topic.name,
                one.partition_index,
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                topic.topic_id,
            )
            found.append((offset, place))
    return found


async def commit(
    offsets: Sequence[tuple[OffsetToCommit, Any]],
    ask: Callable[[list[OffsetToCommit]], list[ErrorCode] | Awaitable[list[ErrorCode]]],
) -> None:
    """Have the coordinator commit, and fill in what it answers."""
    for first in range(0, len(offsets), OFFSETS_PER_COMMIT_MAX):
        if first:
            await next_turn()
        some = offsets[first : first + OFFSETS_PER_COMMIT_MAX]
        errors = await settled(ask([offset for offset, _ in some]))
        for (_, place), error in zip(some, errors, strict=True):
            place.error_code = error

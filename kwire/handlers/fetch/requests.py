"""Checks of a Fetch request: its session, and whether it is large, repeats partitions or has impossible names."""

from collections.abc import Sequence

from kwire.broker.fetch.sessions import FetchSession
from kwire.broker.topics.names import NAME_LENGTH_MAX
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

# Requests with more topics and partitions than this are handled in chunks.
ELEMENTS_AT_ONCE_MAX = 1_000


def is_large(request: FetchRequest) -> bool:
    count = 0
    for asked in request.topics:
        count += 1 + len(asked.partitions)
    for gone in request.forgotten_topics_data:
        count += 1 + len(gone.partitions)
    return count > ELEMENTS_AT_ONCE_MAX


def has_overlong_names(topics: Sequence[FetchTopic]) -> bool:
    """Whether a name is too long for a topic. A hostile client could fill a session with megabytes of such names."""
    return any(len(asked.topic) > NAME_LENGTH_MAX for asked in topics)


def has_repeats(topics: list[FetchTopic], by_id: bool) -> bool:
    for asked in topics:
        partitions = asked.partitions
        if len(partitions) > 1 and len({one.partition for one in partitions}) < len(partitions):
            return True
    return len(topics) > 1 and len({asked.topic_id if by_id else asked.topic for asked in topics}) < len(topics)


async def without_repeats(topics: list[FetchTopic], by_id: bool) -> list[FetchTopic]:
    """Merge repeated partitions: each keeps the position of its first entry and the parameters of its last entry."""
    merged: dict[str | bytes, tuple[FetchTopic, dict[int, FetchPartition]]] = {}
    async for asked in spread(topics):
        _, partitions = merged.setdefault(asked.topic_id if by_id else asked.topic, (asked, {}))
        async for one in spread(asked.partitions):
            partitions[one.partition] = one
    async for asked, partitions in spread(merged.values()):
        asked.partitions = list(partitions.values())
    return [asked for asked, _ in merged.values()]


def find_session(context: Context, request: FetchRequest, by_id: bool) -> FetchSession:
    """Return the session that the request continues. Raises KafkaError."""
    sessions, owner = context.services.fetch_sessions, context.views.prefix
    session = sessions.find(request.session_id, request.session_epoch, uses_topic_ids=by_id, owner=owner)
    if not by_id and has_overlong_names(request.topics):
        sessions.close(request.session_id)
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return session

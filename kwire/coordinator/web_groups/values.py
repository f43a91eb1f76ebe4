"""The values of groups for HTTP members, and the checks of what clients send."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kwire.access.scope import plain_part
from kwire.config.http_api import RestGroupsConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.topic_directory import StreamTopic

# The names of the assignment strategies in the HTTP API (requirement S0-69).
STRATEGIES = ("round_robin", "range", "sticky")
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 1_800_000
# Kafka's tools do not show longer group ids.
GROUP_ID_LENGTH_MAX = 249
RESERVED_PREFIX = "__"


class Joined(NamedTuple):
    member_id: str
    generation: int
    partitions: Sequence[int]


class MemberStatus(NamedTuple):
    """A member's assignment. While `is_rebalancing`, some partitions have yet to be assigned or revoked."""

    generation: int
    partitions: Sequence[int]
    is_rebalancing: bool
    session_timeout_ms: int


class GroupState(NamedTuple):
    """What the coordinator knows of a group. `rebalanced_ms_ago` is None if it is not known."""

    state: str = "Empty"
    member_count: int = 0
    generation: int = 0
    committed_partitions: int = 0
    rebalanced_ms_ago: int | None = None


class GroupStats(NamedTuple):
    topic: str
    partition_count: int
    state: GroupState


class MemberReader(Protocol):
    """A stream that reads the partitions assigned to an HTTP member, and sends the events to the member."""

    def replaced(self) -> None:
        """Called when another reader has replaced this one."""
        ...

    async def leave(self) -> None:
        """Stop reading and commit. Called before the member leaves. Must return after a bounded time in any case."""
        ...


class GroupDefaults(NamedTuple):
    """Default values of fields that a request omits, and the maximum time in which members release partitions."""

    strategy: str = "round_robin"
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000


def defaults_of(config: RestGroupsConfig) -> GroupDefaults:
    return GroupDefaults(config.strategy, config.session_timeout_ms, config.rebalance_timeout_ms)


def check_group_id(group_id: str) -> None:
    plain = plain_part(group_id)
    length_max = GROUP_ID_LENGTH_MAX - (len(group_id) - len(plain))
    if not plain.strip() or len(plain) > length_max or plain.startswith(RESERVED_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"a group id must have 1 to {length_max} characters, must not be blank and must not begin with "
            f"{RESERVED_PREFIX}",
        )


def check_partition(topic: StreamTopic, index: int) -> None:
    if not 0 <= index < topic.partition_count:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {index} does not exist: topic {topic.name} has {topic.partition_count} partitions",
        )


def session_ms(asked_ms: int | None, default_ms: int) -> int:
    """Return the session timeout of a member; the default if it asks for none. Raises KafkaError."""
    timeout_ms = default_ms if asked_ms is None else asked_ms
    if not SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"the session timeout must be {SESSION_TIMEOUT_MS_MIN // 1000} to {SESSION_TIMEOUT_MS_MAX // 1000} "
            f"seconds, got {timeout_ms / 1000:g}",
        )
    return timeout_ms


def raise_if_error(error: ErrorCode, message: str | None = None) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


def commit_problem(error: ErrorCode, group_id: str, member_id: str | None, generation: int | None) -> str | None:
    """Return the message of a refused commit; None if the error has none of its own."""
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        return f"{member_id} is not, or is no longer, a member of group {group_id}"
    if error is ErrorCode.STALE_MEMBER_EPOCH:
        return f"generation {generation} is not the current generation; fetch the assignment again"
    return None

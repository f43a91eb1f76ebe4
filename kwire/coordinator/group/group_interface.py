"""The common interface of classic groups and consumer groups."""

from typing import Protocol

from kwire.coordinator.decisions import Moment
from kwire.coordinator.group.commands import CommittedOffset
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode

CLASSIC = "classic"
EMPTY_STATE = "Empty"


class Group(Protocol):
    """One group of a shard, of the classic or the consumer protocol."""

    group_id: str
    # The time at which the deadlines must be checked next, and the time for which the shard has scheduled a check.
    wake_ms: int | None
    armed_ms: int | None

    @property
    def kind(self) -> str:
        """Kafka's name for the group's type."""
        ...

    @property
    def state(self) -> str:
        """Kafka's name for the state, as Kafka's tools print it."""
        ...

    @property
    def listed_protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has neither members nor issued member ids."""
        ...

    @property
    def is_discardable(self) -> bool:
        """Whether the group can be removed from memory: it has no record, no members and no joining clients."""
        ...

    @property
    def is_retained_when_empty(self) -> bool:
        """Whether the group is kept without members and offsets until a client deletes it."""
        ...

    def is_subscribed(self, topic: str) -> bool: ...

    def check_delete(self) -> ErrorCode: ...

    def check_offset_delete(self) -> ErrorCode: ...

    def unused_since_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention time of an offset began; None if it has not begun.

        Called only if no member subscribes to the topic.
        """
        ...

    def tombstones(self) -> list[KeyValue]:
        """Return the records that delete the group from the log."""
        ...

    def loaded(self, moment: Moment) -> None: ...

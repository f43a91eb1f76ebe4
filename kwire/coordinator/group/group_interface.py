"""What a shard needs of a group, whichever protocol its members speak: the classic one or the consumer protocol."""

from typing import Protocol

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment
from kwire.coordinator.group.commands import CommittedOffset
from kwire.errors import ErrorCode

CLASSIC = "classic"
EMPTY_STATE = "Empty"


class Group(Protocol):
    """One group of a shard: how it is listed, when it may go, and for how long its offsets are in use."""

    group_id: str
    # When it wants to be asked about its deadlines, and what the shard has noted down of that.
    wake_ms: int | None
    armed_ms: int | None

    @property
    def kind(self) -> str:
        """Kafka's name of the group's type."""
        ...

    @property
    def state(self) -> str:
        """Kafka's name of the state, as its tools print it."""
        ...

    @property
    def listed_protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """It has no members, and nobody is on the way in: it may be deleted."""
        ...

    @property
    def is_forgettable(self) -> bool:
        """Nothing of it is worth a record: it came to be by a request that led nowhere."""
        ...

    @property
    def is_kept(self) -> bool:
        """It stays though it has neither members nor offsets, until somebody deletes it."""
        ...

    def is_subscribed(self, topic: str) -> bool: ...

    def check_delete(self) -> ErrorCode: ...

    def check_offset_delete(self) -> ErrorCode: ...

    def unused_since_ms(self, committed: CommittedOffset) -> int | None:
        """From when on an offset of a topic without subscribers is kept for the retention time; None: for ever."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """What takes the group out of the log."""
        ...

    def loaded(self, moment: Moment) -> None: ...

"""The position of one subscription, and how the subscription resumes after a lost connection.

The module uses no sockets and no clock. Its invariant: every offset from the start of the subscription to
`next_offset` (exclusive) was yielded once, in order, or was filtered out, or lies in a `Gap` that was yielded. The
position changes only when the client receives the response to a subscribe request, an event or a control message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kwire.client.errors import OffsetOutOfRange, Refused
from kwire.client.events import (
    REASON_RECREATED,
    REASON_RETENTION,
    REASON_SHORTENED,
    CaughtUp,
    Gap,
    Lagging,
    Position,
)


class Start(NamedTuple):
    """The start position that the caller requested for a subscription."""

    from_offset: int | None = None
    replay: bool | None = None
    from_time: str | int | None = None
    resume: Position | None = None


class SubscribeOutcome(NamedTuple):
    """The gaps found in the response to a subscribe request, and whether the client must subscribe again."""

    gaps: Sequence[Gap]
    # True if the server lost the end of the log. The requested start is then beyond the log's new end, and the server
    # would skip the new events before this start. So the client must subscribe again, from the cursor's new position.
    must_resubscribe: bool


class Cursor:
    """Tracks the position of a subscription: the epoch of the log, and the next offset.

    A log that is deleted and created again has another epoch.
    """

    def __init__(self, room: str, start: Start, options: Mapping[str, Any]) -> None:
        self.room = room
        self._start = start
        self._options = {name: value for name, value in options.items() if value is not None}
        self.epoch: str | None = start.resume.epoch if start.resume is not None else None
        self.next_offset: int | None = start.resume.next_offset if start.resume is not None else None
        # The newest offset that the log is known to have had in this epoch.
        self._newest_known = -1 if self.next_offset is None else self.next_offset - 1

    @property
    def position(self) -> Position | None:
        if self.epoch is None or self.next_offset is None:
            return None
        return Position(self.epoch, self.next_offset)

    def request(self) -> dict[str, Any]:
        """Return the payload of the next `stream.subscribe` command."""
        payload: dict[str, Any] = {"room": self.room, **self._options}
        if self.next_offset is not None:
            payload["from_offset"] = self.next_offset
            if self.epoch is not None:
                payload["epoch"] = self.epoch
            return payload
        for name in ("from_offset", "replay", "from_time"):
            value = getattr(self._start, name)
            if value is not None:
                payload[name] = value
        return payload

    def subscribed(self, result: Mapping[str, Any]) -> SubscribeOutcome:
        """Process the response to a subscribe request: compare its start offset with the requested start offset."""
        epoch, begins_at = str(result["epoch"]), int(result["next_offset"])
        newest = int(result["newest_offset"])
        wanted, known_epoch, newest_known = self.next_offset, self.epoch, self._newest_known
        self.epoch, self.next_offset, self._newest_known = epoch, begins_at, newest
        if wanted is None:
            return SubscribeOutcome((), False)
        if epoch != known_epoch:
            return SubscribeOutcome((Gap(self.room, wanted, None, REASON_RECREATED),), False)
        if newest < newest_known and newest < wanted - 1:
            # The server lost the end of the log, for example in a power failure with the sync mode `os`. New events get
            # the offsets of the lost ones.
            self.next_offset = newest + 1
            return SubscribeOutcome((Gap(self.room, newest + 1, wanted - 1, REASON_SHORTENED),), True)
        # The response's field `recovered` is not used. It is false in the two cases above, but also for a start beyond
        # the end of the log.
        # The server never refuses a start at offset 0, because it reads 0 as "from the oldest event". If the events
        # from offset 0 on were deleted, the gap is detected only here.
        return SubscribeOutcome(self._gap_to(wanted, begins_at), False)

    def refused(self, error: Refused) -> Sequence[Gap] | None:
        """Process the refusal of a subscribe request.

        If the requested events were deleted, move the position to the oldest event and return the gap. Return None for
        any other error, which the caller must handle.
        """
        if self.next_offset is None or not isinstance(error, OffsetOutOfRange) or error.oldest <= self.next_offset:
            return None
        gaps = self._gap_to(self.next_offset, error.oldest)
        self.next_offset = error.oldest
        self._newest_known = max(self._newest_known, error.oldest - 1)
        return gaps

    def take(self, offset: int) -> bool:
        """Move the position past the event at `offset`. Return False if the event was already yielded."""
        assert self.next_offset is not None
        if offset < self.next_offset:
            return False
        self.next_offset = offset + 1
        self._newest_known = max(self._newest_known, offset)
        return True

    def advance_past(self, offset: int) -> None:
        """Move the position past `offset`: all events up to it were delivered, filtered out or reported as a gap."""
        if self.next_offset is not None:
            self.next_offset = max(self.next_offset, offset + 1)

    def control(self, message: Mapping[str, Any], offset_name: str = "offset") -> CaughtUp | Gap | Lagging | None:
        """Process a control message. Return the item to yield, or None if the message has none.

        `offset_name` is the name of the offset field in the message: "offset", "position" or "version".
        """
        offset = message.get(offset_name, -1)
        match message["control"]:
            case "gap":
                start, end = message[f"from_{offset_name}"], message[f"to_{offset_name}"]
                self.advance_past(end)
                return Gap(self.room, start, end, message.get("reason", "unknown"))
            case "caught_up":
                self.advance_past(offset)
                return CaughtUp(self.room, offset)
            case "lagging":
                return Lagging(self.room, offset, message.get("behind", 0))
            case "checkpoint":
                self.advance_past(offset)
        return None

    def _gap_to(self, wanted: int, begins_at: int) -> Sequence[Gap]:
        if begins_at <= wanted:
            return ()
        return (Gap(self.room, wanted, begins_at - 1, REASON_RETENTION),)

"""Where one subscription stands, and how it goes on after a loss. No sockets, no clock.

The invariant: every offset from the first one promised up to `next_offset` was either handed out once, in order, or
lies in a `Gap` that was handed out. Only an answer of the server, an event or a mark moves it.
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
    """Where a user wants to begin."""

    from_offset: int | None = None
    replay: bool | None = None
    from_time: str | int | None = None
    resume: Position | None = None


class Answered(NamedTuple):
    gaps: Sequence[Gap]
    # The server waits for offsets that will mean other events: subscribe anew, from the cursor's new place.
    must_ask_again: bool


class Cursor:
    def __init__(self, room: str, start: Start, options: Mapping[str, Any]) -> None:
        self.room = room
        self._start = start
        self._options = {name: value for name, value in options.items() if value is not None}
        self.epoch: str | None = start.resume.epoch if start.resume is not None else None
        self.next_offset: int | None = start.resume.next_offset if start.resume is not None else None
        # The newest offset known to have existed in this epoch.
        self._newest_known = -1 if self.next_offset is None else self.next_offset - 1

    @property
    def position(self) -> Position | None:
        if self.epoch is None or self.next_offset is None:
            return None
        return Position(self.epoch, self.next_offset)

    def request(self) -> dict[str, Any]:
        """The payload of the next `stream.subscribe`."""
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

    def answered(self, result: Mapping[str, Any]) -> Answered:
        """The server has subscribed: compare what it gives with what was asked for."""
        epoch, begins_at = str(result["epoch"]), int(result["next_offset"])
        newest = int(result["newest_offset"])
        wanted, known_epoch, newest_known = self.next_offset, self.epoch, self._newest_known
        self.epoch, self.next_offset, self._newest_known = epoch, begins_at, newest
        if wanted is None:
            return Answered((), False)
        if epoch != known_epoch:
            return Answered((Gap(self.room, wanted, None, REASON_RECREATED),), False)
        if newest < newest_known and newest < wanted - 1:
            # The machine lost the end of the log (a power cut under `os` sync) and gives its offsets out again.
            self.next_offset = newest + 1
            return Answered((Gap(self.room, newest + 1, wanted - 1, REASON_SHORTENED),), True)
        # `recovered` is false in the two cases above, and for somebody who waits for an offset that never was.
        # Offset 0 is never refused, it means the oldest: what is missing shows here only.
        return Answered(self._gap_to(wanted, begins_at), False)

    def refused(self, error: Refused) -> Sequence[Gap] | None:
        """The gap an error means and behind which reading can go on; None if the error is one for the user."""
        if self.next_offset is None or not isinstance(error, OffsetOutOfRange) or error.oldest <= self.next_offset:
            return None
        gaps = self._gap_to(self.next_offset, error.oldest)
        self.next_offset = error.oldest
        self._newest_known = max(self._newest_known, error.oldest - 1)
        return gaps

    def take(self, offset: int) -> bool:
        """An event has come; False if it was already handed out."""
        assert self.next_offset is not None
        if offset < self.next_offset:
            return False
        self.next_offset = offset + 1
        self._newest_known = max(self._newest_known, offset)
        return True

    def passed(self, offset: int) -> None:
        """Everything up to here was delivered, filtered out or told as a gap."""
        if self.next_offset is not None:
            self.next_offset = max(self.next_offset, offset + 1)

    def mark(self, mark: Mapping[str, Any], place: str = "offset") -> CaughtUp | Gap | Lagging | None:
        """A mark between events has come; the item it means, if any. `place` is what the server calls an offset."""
        offset = mark.get(place, -1)
        match mark["control"]:
            case "gap":
                start, end = mark[f"from_{place}"], mark[f"to_{place}"]
                self.passed(end)
                return Gap(self.room, start, end, mark.get("reason", "unknown"))
            case "caught_up":
                self.passed(offset)
                return CaughtUp(self.room, offset)
            case "lagging":
                return Lagging(self.room, offset, mark.get("behind", 0))
            case "checkpoint":
                self.passed(offset)
        return None

    def _gap_to(self, wanted: int, begins_at: int) -> Sequence[Gap]:
        if begins_at <= wanted:
            return ()
        return (Gap(self.room, wanted, begins_at - 1, REASON_RETENTION),)

"""What a tail reads: any cursor over a log whose offsets are the places of events.

For a room or a topic that is an `EventReader`, and an event's offset is its own. For everything that the event store
holds it is a reader of the journal, and an event's offset is its global position. Nothing else differs: both have a
start, a head and a signal when the head rises.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kwire.broker.events.event import Event
from kwire.streams.log import NotReady, StreamLog


class Reader(Protocol):
    """`next_offset` is the place that comes next. `read` returns and raises what `EventReader.read` does, `put_down`
    lets go of what is large until the next read."""

    next_offset: int

    def read(self) -> Sequence[Event] | NotReady: ...

    def put_down(self) -> None: ...


# A new cursor that begins at an offset of this log.
OpenReader = Callable[[StreamLog, int], Reader]

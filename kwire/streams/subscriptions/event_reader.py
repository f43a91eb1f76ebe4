"""Reader: the cursor over a log that subscriptions read events from.

For a room or a topic, the reader is an `EventReader`, and the offset of an event is its Kafka offset. For a
subscription to all events of the event store, the reader reads the event journal, and the offset of an event is its
global position. Subscriptions make no other distinction. Both kinds of log have a start and a head, and both notify
watchers when the head increases.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kwire.streams.events.event import Event
from kwire.streams.log import NotReady, StreamLog


class Reader(Protocol):
    """A cursor over the events of a log. `next_offset` is the offset of the next event.

    `read` returns and raises the same as `EventReader.read`. `release_buffers` frees large buffers until the next read.
    """

    next_offset: int

    def read(self) -> Sequence[Event] | NotReady: ...

    def release_buffers(self) -> None: ...


# Opens a cursor at an offset of a log.
OpenReader = Callable[[StreamLog, int], Reader]

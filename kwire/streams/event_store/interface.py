"""What HTTP handlers use of an event store, wherever it is. Its events are published with `EventCommands`."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.streams.event_store.global_reader import GlobalReader
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic

if TYPE_CHECKING:
    from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas


class EventReads(Protocol):
    """The logs of an event store. The offsets of an event topic are the versions of its events."""

    def event_topic(self, name: str) -> StreamTopic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        ...

    async def journal(self) -> StreamLog:
        """Return the log of all commits, whose offsets are global positions. `global_reader` reads its events."""
        ...

    def global_reader(self, journal: StreamLog, position: int) -> GlobalReader: ...


class EventTopicDirectory(Protocol):
    """The event topics and their schemas."""

    def find(self, name: str) -> StreamTopic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        ...

    def names(self) -> list[str]:
        """Return the names of all event topics, sorted."""
        ...

    def schemas(self, topic: StreamTopic) -> "TopicSchemas":
        """Return the schemas of a topic; raises NotAnEventTopic if it has none."""
        ...


class EventStoreFacts(NamedTuple):
    """The state of the event store of a bridge, for metrics."""

    is_open: bool
    # Why it is not; empty if it is, or if there are no event topics.
    problem: str
    topics: int
    commits: int
    events: int
    transactions: int
    waiting_commits: int

"""Events for tests of the event store, and what is in its topics and its journal."""

import json
from collections.abc import Sequence

from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic, Topics
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.events.event import Event
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NotReady
from tests.support.events import stream_of, wait_here

PORTIONS_MAX = 10_000


def draft(topic: str, payload: object = None, **more: object) -> EventDraft:
    """An event of type `made`; `payload` may be anything that JSON has."""
    return EventDraft(topic, "made", json.dumps(payload).encode(), **more)  # type: ignore[arg-type]


def drafts(*asked: tuple[str, object]) -> list[EventDraft]:
    return [draft(topic, payload) for topic, payload in asked]


def events_of(topic: Topic) -> list[Event]:
    """All that can be read of a topic."""
    partition = topic.partitions[0]
    return _all(EventReader(stream_of(partition), partition.log_start_offset))


def payloads_of(topic: Topic) -> list[object]:
    return [json.loads(event.data) for event in events_of(topic)]


def all_events(store: EventStore, topics: Topics, position: int | None = None) -> list[Event]:
    """All that can be read of the journal, in its order."""
    journal = journal_of(topics)
    start = journal.log_start_offset if position is None else position
    return _all(store.global_reader(stream_of(journal), start))


def journal_of(topics: Topics) -> Partition:
    topic = topics.get("__events")
    assert topic is not None
    return topic.partitions[0]


def _all(reader: object) -> list[Event]:
    found: list[Event] = []
    for _ in range(PORTIONS_MAX):
        portion: Sequence[Event] | NotReady = reader.read()  # type: ignore[attr-defined]
        if isinstance(portion, NotReady):
            wait_here(portion)
        elif not portion:
            return found
        else:
            found += portion
    raise AssertionError("there is no end of it")

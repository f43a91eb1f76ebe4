"""What a group coordinator may know of topics: ids, partition counts and names, and whether any of it has changed.

State machines are given this view instead of the broker, so that a test has topics without one. `revision` is another
number after every change of the catalogue; whoever derives something from topics remembers the revision and looks
again only when it has moved, so that a heartbeat costs the same with a hundred thousand topics as with one.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kwire.broker.catalogue import Catalogue


class TopicShape(NamedTuple):
    topic_id: bytes
    partition_count: int


class TopicsView(Protocol):
    @property
    def revision(self) -> int: ...

    def find(self, name: str) -> TopicShape | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]:
        """All names of this moment; takes time with the number of topics."""
        ...


class NoTopics:
    """The view of a coordinator whose groups need none: only classic groups, whose members look for themselves."""

    revision = 0

    def find(self, name: str) -> TopicShape | None:
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


class CatalogueView:
    """The topics of this node."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    @property
    def revision(self) -> int:
        return self._catalogue.revision

    def find(self, name: str) -> TopicShape | None:
        facts = self._catalogue.find(name)
        return None if facts is None else TopicShape(facts.topic_id, facts.partition_count)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._catalogue.name_of(topic_id)

    def names(self) -> Iterable[str]:
        return self._catalogue.names()

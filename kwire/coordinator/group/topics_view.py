"""The group coordinator's view of topics: names, ids, partition counts, and a revision number.

State machines use this view instead of the broker, so that tests need no broker. `revision` changes whenever a topic
changes. Values that are computed from topics are cached with the revision. They are computed again only when the
revision has changed. So a heartbeat takes the same time with 100,000 topics as with one.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kwire.broker.topics.catalogue import Catalogue


class TopicShape(NamedTuple):
    topic_id: bytes
    partition_count: int


class TopicsView(Protocol):
    @property
    def revision(self) -> int: ...

    def find(self, name: str) -> TopicShape | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]:
        """Return all topic names. The time is proportional to the number of topics."""
        ...


class NoTopics:
    """A view without topics. It is enough for classic groups, because their members fetch topic metadata themselves."""

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

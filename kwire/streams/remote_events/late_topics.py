"""LateTopics: topics whose events were not stored in time, such as one without a leader. Others do not wait long."""

from collections.abc import Collection, Iterable
from typing import Final

from kwire.errors import KafkaError, as_value

# How long commits with events of such a topic are refused at once. Then one transaction tries again.
REFUSED_SECONDS: Final = 5.0
# How long that transaction waits for the topic.
RETRY_WAIT_SECONDS: Final = 2.0
# A topic that nobody publishes to for this time is forgotten.
FORGOTTEN_SECONDS: Final = 60.0


class LateTopics:
    """A topic is late from a transaction that it has made fail until one that has stored its events. Pure."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[KafkaError, float]] = {}

    def add(self, topic_ids: Iterable[bytes], error: KafkaError, now: float) -> None:
        self._found = {one: found for one, found in self._found.items() if now < found[1] + FORGOTTEN_SECONDS}
        for topic_id in topic_ids:
            self._found[topic_id] = error, now + REFUSED_SECONDS

    def stored(self, topic_ids: Iterable[bytes]) -> None:
        """Transactions with these topics were committed."""
        if self._found:
            for topic_id in topic_ids:
                self._found.pop(topic_id, None)

    def check(self, topic_id: bytes, now: float) -> None:
        """Raise KafkaError if events of a topic are refused without another attempt."""
        found = self._found.get(topic_id)
        if found is not None and now < found[1]:
            raise as_value(found[0])

    def wait_seconds(self, topic_ids: Collection[bytes], otherwise: float) -> float:
        """Return how long the batches of a transaction may wait for each other."""
        return RETRY_WAIT_SECONDS if self._found and not self._found.keys().isdisjoint(topic_ids) else otherwise

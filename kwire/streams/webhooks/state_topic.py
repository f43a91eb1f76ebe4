"""StateTopic: the topic with the state of webhooks. It is compacted and has one partition.

On a server it is the internal topic `__webhooks`; on a bridge it is a topic of the cluster.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from kwire.streams.events.replay import KeyValue
from storage.batch.record_batch import BatchHeader


class StateTopic(Protocol):
    """Every method may raise KafkaError. Only one process writes to the topic."""

    @property
    def exists(self) -> bool: ...

    def records(self) -> AsyncIterator[KeyValue]:
        """Generate the key and value of each stored record, in order; nothing if the topic does not exist."""
        ...

    async def create(self) -> None:
        """Create the topic."""
        ...

    async def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Store a batch, completely or not at all. It is durable when this returns. The topic exists."""
        ...

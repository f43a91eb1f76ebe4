"""StateTopic: the topic with the state of webhooks. It is compacted and has one partition.

On a server it is the internal topic `__webhooks`; on a bridge it is a topic of the cluster.
"""

from typing import Protocol

from kwire.streams.log import Appended, StreamLog
from storage.batch.record_batch import BatchHeader


class StateTopic(Protocol):
    """Every method may raise KafkaError. Only one process uses the topic."""

    @property
    def exists(self) -> bool: ...

    async def open(self) -> StreamLog | None:
        """Return the log of the topic, complete up to its committed end; None if the topic does not exist."""
        ...

    async def create(self) -> None:
        """Create the topic."""
        ...

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        """Append a batch as `StreamLog.append` does. The topic exists."""
        ...

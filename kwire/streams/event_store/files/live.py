"""The live event files of a server, together with the process that writes them."""

from collections.abc import Sequence
from typing import Any, Self

from kwire.broker.topics.catalogue import SCHEMAS_PREFIX
from kwire.broker.topics.topics import Topics
from kwire.concurrency.worker_process import WorkerProcess
from kwire.metastore import MetaStore
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.event_store.files.sink import EventFiles
from storage.disk.files import Files


class LiveFiles:
    """The live event files and their worker process. `open` starts both, and `close` ends both.

    Events that are published after `close` was called may have no files until the next start.
    """

    def __init__(self, sink: EventFiles, worker: WorkerProcess, event_topics: EventTopics) -> None:
        self.sink = sink
        self._worker = worker
        self._event_topics = event_topics

    @classmethod
    async def open(
        cls,
        directory: str,
        owner: str,
        topics: Topics,
        metastore: MetaStore,
        event_topics: EventTopics,
    ) -> Self:
        """Start writing. Raises WrongOwner if the directory has another owner, OSError if it cannot be used."""
        worker = WorkerProcess()

        def schemas_of(topic_id: bytes) -> Sequence[Any]:
            entry = metastore.get(SCHEMAS_PREFIX + topic_id.hex())
            schemas: Sequence[Any] = () if entry is None else entry.value["schemas"]
            return schemas

        sink = EventFiles(directory, owner, topics, schemas_of, Files(), worker.run)
        try:
            await sink.open()
        except BaseException:
            await worker.close()
            raise
        event_topics.on_evolved = sink.schemas_changed
        return cls(sink, worker, event_topics)

    async def close(self) -> None:
        self._event_topics.on_evolved = None
        await self.sink.close()
        await self._worker.close()

"""The live files of a server, with the process that writes them."""

from collections.abc import Sequence
from typing import Any, Self

from kwire.broker.catalogue import SCHEMAS_PREFIX
from kwire.broker.store.event_topics import EventTopics
from kwire.broker.store.files.sink import EventFiles
from kwire.broker.topics import Topics
from kwire.broker.worker_process import WorkerProcess
from kwire.metastore import MetaStore
from storage.files import Files


class LiveFiles:
    """Made by `open`, ended by `close`; before that no more events may come, for all to have files."""

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
        """Raises WrongOwner if the directory is another server's, OSError if it cannot be used."""
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

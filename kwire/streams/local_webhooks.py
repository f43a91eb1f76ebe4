"""The storage of the webhooks of a server: definitions in its metadata store, their state in the topic `__webhooks`."""

import asyncio
from collections.abc import AsyncIterator

from kwire.access.secrets.node_keys import NodeKeys
from kwire.broker.topics.catalogue import WEBHOOKS_TOPIC
from kwire.broker.topics.internal_topics import webhooks_topic
from kwire.broker.topics.topics import NewTopic, Topics
from kwire.clock import Clock
from kwire.config import WebhooksConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import MetaStore
from kwire.streams.events.replay import KeyValue, replay_records
from kwire.streams.webhooks.definition_store import MetastoreDefinitionStore, NoDefinitionStore
from kwire.streams.webhooks.state_log import CallLater, NoStateLog, TopicStateLog
from kwire.streams.webhooks.webhooks import WebhookStorage
from storage.batch.record_batch import BatchHeader


def local_webhook_storage(
    topics: Topics, metastore: MetaStore, keys: NodeKeys, clock: Clock, call_later: CallLater, config: WebhooksConfig
) -> WebhookStorage:
    if not config.is_persisted:
        return WebhookStorage(NoDefinitionStore(), NoStateLog())
    return WebhookStorage(
        MetastoreDefinitionStore(metastore, keys), TopicStateLog(LocalStateTopic(topics), clock, call_later)
    )


class LocalStateTopic:
    """The internal topic `__webhooks`. Its partition is part of this process, which alone writes to it."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def exists(self) -> bool:
        return self._topics.get(WEBHOOKS_TOPIC) is not None

    async def records(self) -> AsyncIterator[KeyValue]:
        topic = self._topics.get(WEBHOOKS_TOPIC)
        if topic is None:
            return
        log = topic.stream()
        await log.ready()
        partition = topic.partitions[0]
        if partition.damage is not None or log.high_watermark < log.bounds().end:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{WEBHOOKS_TOPIC}-0 cannot be read to its end: stop the server and restore this folder from a backup",
            )
        async for record in replay_records(log):
            yield record

    async def create(self) -> None:
        try:
            await self._topics.create([NewTopic(WEBHOOKS_TOPIC, *webhooks_topic())])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def append(self, batch: memoryview, header: BatchHeader) -> None:
        topic = self._topics.get(WEBHOOKS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{WEBHOOKS_TOPIC} does not exist")
        stored: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def appended(outcome: int | KafkaError) -> None:
            if not stored.done():
                stored.set_result(outcome if isinstance(outcome, KafkaError) else None)

        topic.stream().append(batch, header, appended)
        error = await stored
        if error is not None:
            raise error

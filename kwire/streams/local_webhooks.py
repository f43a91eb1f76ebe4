"""The storage of the webhooks of a server: definitions in its metadata store, their state in the topic `__webhooks`."""

from kwire.access.secrets.node_keys import NodeKeys
from kwire.broker.topics.catalogue import WEBHOOKS_TOPIC
from kwire.broker.topics.internal_topics import webhooks_topic
from kwire.broker.topics.topics import NewTopic, Topics
from kwire.clock import Clock
from kwire.config import WebhooksConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import MetaStore
from kwire.streams.log import Appended, StreamLog
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

    async def open(self) -> StreamLog | None:
        topic = self._topics.get(WEBHOOKS_TOPIC)
        if topic is None:
            return None
        log = topic.stream()
        await log.ready()
        partition = topic.partitions[0]
        if partition.damage is not None or log.high_watermark < log.bounds().end:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{WEBHOOKS_TOPIC}-0 cannot be read to its end: stop the server and restore this folder from a backup",
            )
        return log

    async def create(self) -> None:
        try:
            await self._topics.create([NewTopic(WEBHOOKS_TOPIC, *webhooks_topic())])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def append(self, batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        topic = self._topics.get(WEBHOOKS_TOPIC)
        if topic is None:
            appended(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{WEBHOOKS_TOPIC} does not exist"))
        else:
            topic.stream().append(batch, header, appended)

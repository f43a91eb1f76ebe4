"""What a test does to topics of a cluster besides StreamLog: administration and transactions, with its own clients."""

from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from kwire.kafka_client.cluster import Cluster
from kwire.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS = 10_000


async def create_topic(cluster: Cluster, name: str, **configs: str) -> None:
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=given)
    response = await cluster.request_controller(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
    assert not response.topics[0].error_code, response


async def delete_topic(cluster: Cluster, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    response = await cluster.request_controller(DELETE_TOPICS, request)
    assert not response.responses[0].error_code, response


async def delete_records(cluster: Cluster, name: str, offset: int) -> None:
    asked = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    response = await cluster.request_leader(name, 0, DELETE_RECORDS, request)
    assert not response.topics[0].partitions[0].error_code, response


class ForeignTransactions:
    """Transactional producers that are not the remote log's."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._producers: dict[int, AIOKafkaProducer] = {}
        self._open: set[int] = set()

    async def send(self, topic: str, number: int, values: Sequence[bytes], at_ms: int) -> None:
        """One batch of the transaction of producer `number`."""
        producer = self._producers.get(number)
        if producer is None:
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=f"{self._prefix}-{number}")
            self._producers[number] = producer
            await producer.start()
        if number not in self._open:
            await producer.begin_transaction()
            self._open.add(number)
        batch = producer.create_batch()
        for value in values:
            batch.append(key=None, value=value, timestamp=at_ms)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))

    async def end(self, number: int, *, is_commit: bool) -> None:
        self._open.discard(number)
        producer = self._producers[number]
        await (producer.commit_transaction() if is_commit else producer.abort_transaction())

    async def stop(self) -> None:
        for number in list(self._open):
            await self.end(number, is_commit=False)
        for producer in self._producers.values():
            await producer.stop()

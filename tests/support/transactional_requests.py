"""Producers of transactions as the handlers see them: requests, without a client."""

from typing import Any, Final, NamedTuple

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire.wire.messages.end_txn import EndTxnRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.record_batch import Record, build_batch
from tests.support.node import QuietNode

# Produce of the first generation of transactions, and of the second.
V1, V2 = 11, 12
TIMEOUT_MS: Final = 60_000


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


async def started(node: QuietNode, transactional_id: str = "tx", version: int = 5, **more: int) -> Producer:
    """A producer that may begin."""
    await node.topics.transactions_topic()
    answer = await node.ask(init_request(transactional_id, **more), version)
    assert answer.error_code == ErrorCode.NONE
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def init_request(
    transactional_id: str | None = "tx",
    producer_id: int = -1,
    producer_epoch: int = -1,
    timeout_ms: int = TIMEOUT_MS,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


async def added(node: QuietNode, producer: Producer, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
    """What each partition is told; a producer of the first generation adds them itself."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    answer = await node.ask(request, version)
    return [
        ErrorCode(one.partition_error_code)
        for result in answer.results_by_topic_v3_and_below
        for one in result.results_by_partition
    ]


def transactional_batch(producer: Producer, *values: bytes, sequence: int = 0) -> memoryview:
    return memoryview(
        build_batch(
            [Record(None, value, 0) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def produce_request(
    producer: Producer, topic: Topic, *batches: memoryview, acks: int = -1, transactional_id: str | None = ""
) -> ProduceRequest:
    """One batch for each partition from 0 on, under the producer's own transactional id unless told otherwise."""
    return ProduceRequest(
        transactional_id=producer.transactional_id if transactional_id == "" else transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=n, records=batch) for n, batch in enumerate(batches)],
            )
        ],
    )


async def sent(
    node: QuietNode, producer: Producer, topic: Topic, *values: bytes, sequence: int = 0, version: int = V2
) -> ErrorCode:
    """Send a batch to partition 0."""
    batch = transactional_batch(producer, *values, sequence=sequence)
    answer = await node.ask(produce_request(producer, topic, batch), version)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def ended(node: QuietNode, producer: Producer, *, is_commit: bool = True, version: int = 5) -> Any:
    """The answer to EndTxn."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )
    return await node.ask(request, version)


def next_of(producer: Producer, answer: Any) -> Producer:
    """The producer as it goes on after EndTxn 5."""
    assert answer.error_code == ErrorCode.NONE
    return Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)

"""The Produce requests of one transaction: each batch is sent to the leader of its partition until it is stored.

A batch is repeated with the same sequence number, so a broker that has stored it before does not store it again.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import RETRIABLE, STALE_METADATA, UNCERTAIN, Unreachable, refusal
from kwire.kafka_client.link import Purpose
from kwire.kafka_client.metadata import Metadata
from kwire.wire.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.types import ZERO_UUID

log = logging.getLogger("kwire.streams.remote")

# The highest version of clients before KIP-890: the partitions were added to the transaction before.
_PRODUCE_VERSION: Final = 11
# How long a leader waits for its replicas: until the deadline, and within these bounds.
_REPLICATION_TIMEOUT_MS: Final = 10_000
_REPLICATION_TIMEOUT_MS_MIN: Final = 1000
_ALL_COPIES: Final = -1
# A topic is deleted if this number of responses in a row do not know it. Fewer may come from a broker that lags behind.
_MISSING_MAX: Final = 4
_NO_OFFSET: Final = -1
# The broker does not know the producer, its epoch or its transaction.
_LOST: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)


class BatchRefused(KafkaError):
    """Some batches are the reason why a transaction was aborted. `numbers` are their indexes."""

    def __init__(self, numbers: Collection[int], error: KafkaError) -> None:
        super().__init__(error.code, str(error))
        self.numbers = tuple(sorted(numbers))


class BatchLate(BatchRefused):
    """The batches were not stored in time, for example because their partitions have no leader."""

    def __init__(self, numbers: Collection[int], problem: str) -> None:
        super().__init__(numbers, KafkaError(ErrorCode.REQUEST_TIMED_OUT, problem))


class TopicGone(BatchRefused):
    """The topic of a batch was deleted, or deleted and created again."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__([number], KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem))


class TransactionLost(KafkaError):
    """The cluster does not know the transaction or its producer any more. Nothing of it is stored."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.code, str(error))


class PartitionWrite:
    """A batch, and where it was stored."""

    __slots__ = ("base_offset", "data", "number", "partition", "topic", "topic_id")

    def __init__(self, number: int, topic: str, topic_id: bytes, partition: int, data: memoryview) -> None:
        self.number = number
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.data = data
        self.base_offset = _NO_OFFSET


class Deadlines(NamedTuple):
    """Until when the batches of a transaction are sent. `others` applies if some are stored, and have to wait."""

    all: float
    others: float


async def write_all(
    cluster: Cluster, transactional_id: str, writes: Sequence[PartitionWrite], deadlines: Deadlines
) -> None:
    """Store all batches. Raises BatchRefused, TransactionLost, or another KafkaError of a broker.

    When it raises, batches may be on their way: the transaction must be aborted, and the next one needs a new epoch.
    """
    backoff = cluster.backoff()
    loop = asyncio.get_running_loop()
    left = list(writes)
    while True:
        now = loop.time()
        left_ms = int(1000 * ((deadlines.others if now < deadlines.others else deadlines.all) - now))
        timeout_ms = min(_REPLICATION_TIMEOUT_MS, max(_REPLICATION_TIMEOUT_MS_MIN, left_ms))
        outcomes = await asyncio.gather(
            *(
                _send(cluster, transactional_id, node, each, timeout_ms)
                for node, each in _by_leader(cluster, left).items()
            ),
            return_exceptions=True,
        )
        left, error = [], None
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            undone, reason = outcome
            left += undone
            error = error or reason
        if not left:
            return
        pause = backoff.next_seconds()
        if loop.time() + pause > (deadlines.all if len(left) == len(writes) else deadlines.others):
            raise BatchLate([write.number for write in left], f"the events were not stored in time: {error}")
        log.debug("%d batches of a transaction are sent again: %s", len(left), error)
        await asyncio.sleep(pause)
        try:
            await cluster.refresh({write.topic for write in left})
        except KafkaError as unreachable:
            log.debug("the leaders are not known: %s", unreachable)


def _by_leader(cluster: Cluster, writes: Sequence[PartitionWrite]) -> dict[int, list[PartitionWrite]]:
    """Return the batches by the node of their leader. Raises TopicGone."""
    found: dict[int, list[PartitionWrite]] = {}
    for write in writes:
        check_exists(cluster.metadata, write.number, write.topic, write.topic_id)
        found.setdefault(cluster.metadata.leader(write.topic, write.partition).node, []).append(write)
    return found


def check_exists(metadata: Metadata, number: int, topic: str, topic_id: bytes) -> None:
    """Raise TopicGone if the topic of a batch was deleted, as far as the metadata tells."""
    known = metadata.topics.get(topic)
    is_other = known is not None and known.topic_id != topic_id != ZERO_UUID
    if is_other or metadata.missing.get(topic, 0) >= _MISSING_MAX:
        raise TopicGone(number, f"the topic {topic!r} is deleted")


async def _send(
    cluster: Cluster, transactional_id: str, node: int, writes: Sequence[PartitionWrite], timeout_ms: int
) -> tuple[list[PartitionWrite], KafkaError | None]:
    """Send batches to their leader. Return those that have to be sent again, and why."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for write in writes:
        topics.setdefault(write.topic, []).append(PartitionProduceData(index=write.partition, records=write.data))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_COPIES,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=each) for name, each in topics.items()],
    )
    try:
        response = await cluster.link(node, Purpose.PRODUCE).request(PRODUCE, request, version_max=_PRODUCE_VERSION)
    except Unreachable as error:
        return list(writes), error
    return _take(cluster, node, writes, response)


def _take(
    cluster: Cluster, node: int, writes: Sequence[PartitionWrite], response: Any
) -> tuple[list[PartitionWrite], KafkaError | None]:
    answers = {(topic.name, one.index): one for topic in response.responses for one in topic.partition_responses}
    undone: list[PartitionWrite] = []
    last: KafkaError | None = None
    for write in writes:
        answer = answers.get((write.topic, write.partition))
        code = ErrorCode.NETWORK_EXCEPTION if answer is None else answer.error_code
        if answer is not None and not code:
            write.base_offset = answer.base_offset
            continue
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It was stored before, and the broker does not remember where.
            continue
        message = None if answer is None else answer.error_message
        error = refusal(f"topic {write.topic!r} partition {write.partition}", code, message)
        if code in _LOST:
            raise TransactionLost(error)
        if code not in RETRIABLE and code not in UNCERTAIN:
            raise BatchRefused([write.number], error)
        if code in STALE_METADATA:
            cluster.metadata.lose_leader(write.topic, write.partition, node)
        undone.append(write)
        last = error
    return undone, last

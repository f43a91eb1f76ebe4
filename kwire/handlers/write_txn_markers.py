"""WriteTxnMarkers 1-2: write transaction markers without the transaction coordinator.

- `kafka-transactions abort` sends this request to end a hanging transaction. In Kafka, brokers also send it to each
  other.
- The request needs ALTER or CLUSTER_ACTION on the cluster. Otherwise every partition is CLUSTER_AUTHORIZATION_FAILED.
- Markers in `__consumer_offsets` commit or drop the offsets of the transaction. Markers in other internal topics and in
  the audit topic are TOPIC_AUTHORIZATION_FAILED. Topics of the event store have no transactions, so markers there are
  INVALID_TXN_STATE.
- The response is sent when the markers are durable. Version 2 adds the transaction version (KIP-1228), which has no
  effect: in both versions an epoch that is older than the epoch in the log is refused.
"""

import asyncio
from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.broker.topics.topics import OFFSETS_TOPIC
from kwire.concurrency.chunking import spread, yield_to_loop
from kwire.coordinator.transaction.marker_appender import TransactionMarker
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Markers that are written between two yields to the event loop.
MARKERS_PER_CHUNK = 100


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    operation = Operation.ALTER if context.cluster.allows(Operation.ALTER) else Operation.CLUSTER_ACTION
    results = []
    async for asked in spread(request.markers, MARKERS_PER_CHUNK):
        results.append(await _write(context, operation, asked))
    return WriteTxnMarkersResponse(markers=results)


async def _write(context: Context, operation: Operation, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result
    )
    topics, waits = [], []
    async for topic in spread(asked.topics, MARKERS_PER_CHUNK):
        partitions = []
        for index in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
            partitions.append(result)
            waits.append(_write_marker(context, operation, (topic.name, index), marker, result))
            if len(waits) % MARKERS_PER_CHUNK == 0:
                await yield_to_loop()
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    async for wait in spread(waits):
        await wait
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics)


def _write_marker(
    context: Context,
    operation: Operation,
    partition: TopicPartition,
    marker: TransactionMarker,
    result: WritableTxnMarkerPartitionResult,
) -> Awaitable[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(error: ErrorCode) -> None:
        result.error_code = error
        if not done.done():
            done.set_result(None)

    if not context.cluster.permits(operation):
        complete(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return done
    topic = context.cluster.topics(operation).get(partition[0])
    if topic is not None and topic.is_server_owned and topic.name != OFFSETS_TOPIC:
        complete(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif topic is not None and topic.settings.is_event_topic:
        complete(ErrorCode.INVALID_TXN_STATE)
    else:
        context.services.markers.write(partition, marker, complete)
    return done

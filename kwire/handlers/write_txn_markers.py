"""WriteTxnMarkers 1-2: write the markers that end transactions, whatever the coordinator says.

- What `kafka-transactions abort` sends to end a transaction that hangs; in Kafka brokers also send it to each other.
- Markers in `__consumer_offsets` let the offsets of the transaction count, or drop them. Other internal topics, and
  topics of the event store, have no transactions in them.
- Answered when the markers are durable. 2 says of which generation the transaction is (KIP-1228): nothing hangs on it
  here, for an epoch that is older than the log's is refused in both.
"""

import asyncio
from collections.abc import Awaitable

from kwire.broker.chunking import next_turn, spread
from kwire.broker.topics import OFFSETS_TOPIC
from kwire.coordinator.transaction.marker_writing import Marker
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# A request can name very many; after this many the loop gets its turn.
MARKERS_PER_TURN = 100


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    results = []
    async for asked in spread(request.markers, MARKERS_PER_TURN):
        results.append(await _write(context, asked))
    return WriteTxnMarkersResponse(markers=results)


async def _write(context: Context, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result)
    topics, waits = [], []
    async for topic in spread(asked.topics, MARKERS_PER_TURN):
        partitions = []
        for index in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
            partitions.append(result)
            waits.append(_written(context, (topic.name, index), marker, result))
            if len(waits) % MARKERS_PER_TURN == 0:
                await next_turn()
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    async for wait in spread(waits):
        await wait
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics)


def _written(
    context: Context, place: TopicPartition, marker: Marker, result: WritableTxnMarkerPartitionResult
) -> Awaitable[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(error: ErrorCode) -> None:
        result.error_code = error
        if not done.done():
            done.set_result(None)

    topic = context.services.topics.get(place[0])
    if topic is not None and topic.is_internal and topic.name != OFFSETS_TOPIC:
        tell(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif topic is not None and topic.settings.is_event_topic:
        tell(ErrorCode.INVALID_TXN_STATE)
    else:
        context.services.markers.write(place, marker, tell)
    return done

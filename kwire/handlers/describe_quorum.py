"""DescribeQuorum 0-2: the quorum of the metadata log. This node is its leader and only voter; there are no observers.

- The request needs DESCRIBE on the cluster.
- Only partition 0 of `__cluster_metadata` has a quorum. If a request names any other partition, each partition of the
  request is UNKNOWN_TOPIC_OR_PARTITION.
- Version 1 adds the times of a replica's last fetch and last catch-up (KIP-836). For the leader both are the current
  time.
- Version 2 adds error messages, the directory of the log, and the listeners of the voters (KIP-853). kwire has no
  controller listener, so the listener of this client's connection is returned.
"""

from collections.abc import Awaitable, Sequence
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.admin.metadata_log import METADATA_TOPIC
from kwire.broker.chunked_answers import answer_in_chunks, partition_chunks
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    QuorumPartitionData,
    QuorumTopicData,
    ReplicaState,
)

PARTITION = 0
UNKNOWN = -1


def handle(
    context: Context, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | Awaitable[DescribeQuorumResponse]:
    if not context.cluster.permits(Operation.DESCRIBE):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    if not _is_of_the_metadata_log(request):
        return answer_in_chunks(
            (
                _unknown_topic(asked.topic_name, some)
                for asked in request.topics
                for some in partition_chunks(asked.partitions)
            ),
            lambda topic: 1 + len(topic.partitions),
            _response,
            context.elements_encoder(DescribeQuorumResponse, "topics"),
            lambda count, chunks: _response(context.encoded_elements(count, chunks)),
        )
    described = QuorumTopicData(topic_name=METADATA_TOPIC, partitions=[_described(context)])
    node = Node(node_id=context.services.node.node_id, listeners=[_listener(context)])
    return DescribeQuorumResponse(error_code=0, topics=[described], nodes=[node])


def _is_of_the_metadata_log(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == PARTITION


def _response(topics: Any) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=0, topics=topics)


def _unknown_topic(name: str, asked: Sequence[PartitionData]) -> QuorumTopicData:
    return QuorumTopicData(topic_name=name, partitions=[_unknown(one.partition_index) for one in asked])


def _described(context: Context) -> QuorumPartitionData:
    log, node_id, now_ms = context.services.metadata_log, context.services.node.node_id, context.services.clock.now_ms()
    end = log.end_offset
    voter = ReplicaState(
        replica_id=node_id,
        replica_directory_id=log.directory_id,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return QuorumPartitionData(
        partition_index=PARTITION,
        error_code=0,
        leader_id=node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=end,
        current_voters=[voter],
        observers=[],
    )


def _unknown(index: int) -> QuorumPartitionData:
    return QuorumPartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"Only {METADATA_TOPIC} has a quorum, and only partition {PARTITION} of it.",
        leader_id=UNKNOWN,
        leader_epoch=UNKNOWN,
        high_watermark=UNKNOWN,
        current_voters=[],
        observers=[],
    )


def _listener(context: Context) -> Listener:
    host, port = context.endpoint
    config = context.services.config
    # If the operating system chose the port or a proxy changes it, no configured listener has this port. Then use the
    # name of the first listener.
    name = next(
        (one.name for one in (*config.advertised_listeners, *config.listeners) if one.port == port),
        config.listeners[0].name,
    )
    # The Java client requires a name in upper case.
    return Listener(name=name.upper(), host=host, port=port)

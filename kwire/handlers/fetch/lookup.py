"""How a reader finds topics, and everything that the result depends on.

A consumer needs READ on each topic. A follower needs CLUSTER_ACTION on the cluster, and no right on the topics.
"""

from collections.abc import Callable
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.fetch.sessions import RequestedPartition
from kwire.broker.partition import UNKNOWN_EPOCH, Partition
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from storage.batch.format import ZSTD

# Finds a topic by its name, or by its id if the request uses ids. Raises KafkaError if the reader may not read it.
TopicLookup = Callable[[Any], Topic | None]


def follower_lookup(context: Context, by_id: bool) -> TopicLookup:
    """Return the function with which a follower finds topics. Consumers use the view of the topics."""
    if not context.cluster.permits(Operation.CLUSTER_ACTION):
        return _refuse
    topics = context.cluster.topics(Operation.CLUSTER_ACTION)
    return topics.get_by_id if by_id else topics.get


def _refuse(topic: object) -> None:
    # Kafka has this error for followers, too.
    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_restrictions(partition: Partition, asked: RequestedPartition, is_follower: bool) -> None:
    """Raise KafkaError if a follower, or a client whose version does not allow zstd, may not read the partition."""
    if is_follower:
        # Kafka's errors for a node that is not a replica of the partition. The node retries with newer metadata.
        is_epoch_known = asked.current_leader_epoch != UNKNOWN_EPOCH
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if is_epoch_known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.settings.compression == ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def lookup_state(context: Context, is_follower: bool) -> object:
    """Return a value that changes whenever a lookup of this reader may have another result.

    A session may be continued on a connection of another principal, or by a follower and then by a consumer, so these
    are part of the value.
    """
    deletion_count, access = context.services.topics.deletion_count, context.views.access
    if access.is_unrestricted:
        return deletion_count
    return deletion_count, access.principal, access.host, access.revision, is_follower


def missing_code(topic: Topic | None, by_id: bool) -> ErrorCode:
    """Return the error of a partition that does not exist, or that belongs to a topic of the server."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.is_hidden else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

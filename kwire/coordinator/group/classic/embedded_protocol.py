"""Kafka's embedded consumer protocol: the subscriptions and assignments that members of a classic group exchange.

A classic group stores subscriptions and assignments as bytes. They are decoded only to describe a group or to migrate
it between protocols. The format is a 16-bit version and a body. Later versions only append fields, so data of a version
above VERSION_MAX is decoded as VERSION_MAX.

Members of a group in a scope use plain names of the scope. The functions that decode add the prefix of the scope, and
the function that encodes removes it, so all other code uses full names. The prefix is that of the group, so a member
cannot name a topic of another scope.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kwire.wire.codec import decode_message, encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from kwire.wire.errors import WireError

# The protocol type of consumers. Groups of other types (such as Kafka Connect) use other formats.
CONSUMERS = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2

M = TypeVar("M")


def version_of(data: bytes) -> int:
    """Return the version of a subscription or an assignment, or VERSION_MAX if it is higher. Raises WireError."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise WireError("a consumer subscription or assignment must begin with a 16-bit version")
    return min(version, VERSION_MAX)


def read_subscription(data: bytes, prefix: str = "") -> ConsumerProtocolSubscription:
    """Decode a subscription of a member of a group with this prefix. Raises WireError."""
    subscription = _read(ConsumerProtocolSubscription, data)
    if prefix:
        subscription.topics = [prefix + name for name in subscription.topics]
        for one in subscription.owned_partitions:
            one.topic = prefix + one.topic
    return subscription


def read_assignment(data: bytes, prefix: str = "") -> ConsumerProtocolAssignment:
    """Decode an assignment of a member of a group with this prefix. Raises WireError."""
    assignment = _read(ConsumerProtocolAssignment, data)
    if prefix:
        for one in assignment.assigned_partitions:
            one.topic = prefix + one.topic
    return assignment


def _read(cls: type[M], data: bytes) -> M:
    return decode_message(cls, version_of(data), memoryview(data)[_VERSION_BYTES:])


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int, prefix: str = "") -> bytes:
    """Encode an assignment for a member of a group with this prefix, given as partitions by topic name."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic.removeprefix(prefix), partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
            if topic.startswith(prefix)
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_message(assignment, version)


def write_subscription(topics: Iterable[str], version: int, user_data: bytes | None = None) -> bytes:
    """Encode the subscription of a member that owns no partitions."""
    subscription = ConsumerProtocolSubscription(topics=sorted(topics), user_data=user_data)
    return version.to_bytes(_VERSION_BYTES, "big") + encode_message(subscription, version)

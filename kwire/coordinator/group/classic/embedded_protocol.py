"""Kafka's embedded consumer protocol: the subscriptions and assignments that members of a classic group exchange.

A classic group stores subscriptions and assignments as bytes. They are decoded only to describe a group or to migrate
it between protocols. The format is a 16-bit version and a body. Later versions only append fields, so data of a version
above VERSION_MAX is decoded as VERSION_MAX.
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


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription. Raises WireError."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. Raises WireError."""
    return _read(ConsumerProtocolAssignment, data)


def _read(cls: type[M], data: bytes) -> M:
    return decode_message(cls, version_of(data), memoryview(data)[_VERSION_BYTES:])


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """Encode an assignment, given as partitions by topic name."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(indexes)) for topic, indexes in sorted(partitions.items())
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_message(assignment, version)

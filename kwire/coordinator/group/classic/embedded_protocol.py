"""What consumers of a classic group tell each other, read and written by the server.

A classic group does not need to understand it; whoever looks at a group, or moves it between the protocols, does. It is
a 16-bit version and a body. Later versions may only add to the end, so they are read as the last one known.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kwire.wire.codec import decode_message, encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from kwire.wire.errors import WireError

# The protocol type of consumers; what groups of other types tell each other is not written like this.
CONSUMERS = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2

M = TypeVar("M")


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment, of those known here. Raises WireError."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise WireError("what a consumer says begins with a version")
    return min(version, VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises WireError."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises WireError."""
    return _read(ConsumerProtocolAssignment, data)


def _read(cls: type[M], data: bytes) -> M:
    return decode_message(cls, version_of(data), memoryview(data)[_VERSION_BYTES:])


def write_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """Partitions by the name of the topic."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(indexes)) for topic, indexes in sorted(partitions.items())
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_message(assignment, version)

"""Partitioner: chooses the partition of an event by its key, like Kafka's default partitioner, or else round-robin."""

import struct

# The maximum number of topics whose round-robin counters are kept. If the counter of a topic was evicted, the topic
# starts at partition 0 again.
COUNTERS_MAX = 10_000

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_32_BITS = 0xFFFFFFFF
_31_BITS = 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that the Java client chooses, so that all clients write a key to the same partition."""
    return (murmur2(key) & _31_BITS) % partition_count


def murmur2(data: bytes) -> int:
    """Return the hash that Kafka's clients use, as an unsigned 32-bit number."""
    size = len(data)
    whole = size >> 2
    value = _SEED ^ size & _32_BITS
    for word in struct.unpack_from(f"<{whole}I", data):
        word = word * _MIX & _32_BITS
        value = value * _MIX & _32_BITS ^ (word ^ word >> 24) * _MIX & _32_BITS
    rest = data[whole << 2 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MIX & _32_BITS
    value = (value ^ value >> 13) * _MIX & _32_BITS
    return value ^ value >> 15


class Partitioner:
    """Chooses partitions for events. Use it only in the event loop's thread."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the partition for `key`. Without a key, calls for a topic return its partitions in turn."""
        if key is not None:
            return partition_for_key(key, partition_count)
        counters = self._counters
        counter = counters.pop(topic, 0)
        if len(counters) >= COUNTERS_MAX:
            del counters[next(iter(counters))]
        counters[topic] = counter + 1
        return counter % partition_count

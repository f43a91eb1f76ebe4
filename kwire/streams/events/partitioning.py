"""Which partition an event goes to: by its key, as every Kafka client with default settings decides it, or in turn."""

import struct

# Topics whose turn is remembered; one that was forgotten begins anew.
TURNS_MAX = 10_000

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_32_BITS = 0xFFFFFFFF
_31_BITS = 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The same as the Java client's, so a key stays in its partition whoever writes it."""
    return (murmur2(key) & _31_BITS) % partition_count


def murmur2(data: bytes) -> int:
    """The hash of Kafka's clients, 32 bits without a sign."""
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
    """Chooses partitions. Called from the event loop."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """By key; without one, each partition of the topic in its turn."""
        if key is not None:
            return partition_for_key(key, partition_count)
        turns = self._turns
        turn = turns.pop(topic, 0)
        if len(turns) >= TURNS_MAX:
            del turns[next(iter(turns))]
        turns[topic] = turn + 1
        return turn % partition_count

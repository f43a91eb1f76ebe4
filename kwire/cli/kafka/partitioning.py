"""Chooses the partitions of records as the Java client does: by the hash of the key, or one partition per batch."""

import random
from collections.abc import Sequence

from kwire.streams.events.partitioning import partition_for_key

# Bound of the keys whose partition is kept. Hashing a key takes some microseconds.
KEYS_MAX = 100_000


class Partitioner:
    """Chooses among the partitions of one topic."""

    def __init__(self, partitions: Sequence[int], rng: random.Random | None = None) -> None:
        self._partitions = list(partitions)
        self._rng = rng or random.Random()
        self._by_key: dict[bytes, int] = {}
        self._sticky = self._rng.choice(self._partitions)

    def for_key(self, key: bytes) -> int:
        """Return the partition of a key: murmur2, as in Java."""
        partition = self._by_key.get(key)
        if partition is None:
            partition = partition_for_key(key, len(self._partitions))
            if len(self._by_key) >= KEYS_MAX:
                self._by_key.clear()
            self._by_key[key] = partition
        return partition

    @property
    def sticky(self) -> int:
        """The partition of records without a key, until the next `next_sticky`."""
        return self._sticky

    def next_sticky(self) -> None:
        """Choose another partition for records without a key. Producers call it after each batch."""
        if len(self._partitions) > 1:
            others = [one for one in self._partitions if one != self._sticky]
            self._sticky = self._rng.choice(others)

"""Limits the memory for member metadata: the protocols of a JoinGroup, which are stored as long as the member exists.

There are three limits:
- MEMBER_METADATA_BYTES_MAX limits the metadata of one member. In Kafka, the record of a whole group has this size limit
  by default. Real members use a few kilobytes.
- GROUP_METADATA_BYTES_MAX limits the metadata of one group. The metadata of all members for the selected protocol must
  fit into one record of the offsets topic, so a larger group could never become stable.
- COORDINATOR_METADATA_BYTES_MAX limits the metadata of all groups of a node. The protocols of a JoinGroup count towards
  this limit as long as the tuple that `reserve` returned is in memory.
"""

from collections.abc import Iterable, Sequence

Protocols = tuple[tuple[str, bytes], ...]

MEMBER_METADATA_BYTES_MAX = 1024 * 1024
GROUP_METADATA_BYTES_MAX = 16 * 1024 * 1024
COORDINATOR_METADATA_BYTES_MAX = 128 * 1024 * 1024


def metadata_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class MetadataBudget:
    """Counts the bytes of metadata of the members of all classic groups."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = COORDINATOR_METADATA_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def reserve(self, protocols: Sequence[tuple[str, bytes]]) -> Protocols | None:
        """Return the protocols as a tuple, or None if their bytes would exceed the limit.

        The bytes are included in `used_bytes` until the tuple is freed.
        """
        size_bytes = metadata_bytes(protocols)
        if self.used_bytes + size_bytes > self.limit_bytes:
            return None
        return _HeldProtocols(protocols, self, size_bytes)


class _HeldProtocols(tuple[tuple[str, bytes], ...]):
    """A tuple of protocols. Its bytes are included in the budget's `used_bytes` while the tuple exists."""

    _budget: MetadataBudget
    _size_bytes: int

    def __new__(
        cls, protocols: Sequence[tuple[str, bytes]], budget: MetadataBudget, size_bytes: int
    ) -> "_HeldProtocols":
        made = super().__new__(cls, protocols)
        made._budget, made._size_bytes = budget, size_bytes
        budget.used_bytes += size_bytes
        return made

    def __del__(self) -> None:
        self._budget.used_bytes -= self._size_bytes

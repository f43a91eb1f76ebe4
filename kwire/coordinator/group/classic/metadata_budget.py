"""The memory that metadata of members takes: what a JoinGroup says of each protocol is held as long as its member.

Three bounds hold. A member has at most MEMBER_METADATA_BYTES_MAX, the default size of Kafka's record of a whole group;
real members have a few kilobytes. A group has at most GROUP_METADATA_BYTES_MAX: what is chosen of it has to fit in one
record of the offsets topic, so a group with more could never become stable. All groups of a node together have at most
COORDINATOR_METADATA_BYTES_MAX. The bytes are counted by the life of the tuple that holds them.
"""

from collections.abc import Iterable, Sequence

Protocols = tuple[tuple[str, bytes], ...]

MEMBER_METADATA_BYTES_MAX = 1024 * 1024
GROUP_METADATA_BYTES_MAX = 16 * 1024 * 1024
COORDINATOR_METADATA_BYTES_MAX = 128 * 1024 * 1024


def metadata_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class MetadataBudget:
    """The bytes of metadata that the members of all classic groups hold."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = COORDINATOR_METADATA_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def hold(self, protocols: Sequence[tuple[str, bytes]]) -> Protocols | None:
        """The protocols, counted until nobody refers to them; None if that would pass the bound."""
        size_bytes = metadata_bytes(protocols)
        if self.used_bytes + size_bytes > self.limit_bytes:
            return None
        return _HeldProtocols(protocols, self, size_bytes)


class _HeldProtocols(tuple[tuple[str, bytes], ...]):
    """A tuple of protocols whose bytes are counted while it exists."""

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

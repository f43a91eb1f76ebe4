"""The interface of a metadata store: get, list, compare-and-set."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

ABSENT = 0


class Entry(NamedTuple):
    """A JSON value, and the revision of the commit that wrote it."""

    value: Any
    revision: int


class Change(Struct, frozen=True):
    """A change of one key. If `value` is None, the key is removed.

    The change is refused if the revision of the key's entry is not `expected_revision`. ABSENT is the revision of a key
    that does not exist.
    """

    key: str
    value: Any
    expected_revision: int


class Conflict(Exception):
    """Another commit has changed one of the keys. No change of this commit was applied."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by another commit")
        self.key = key


class MetaStore(Protocol):
    """The interface of a metadata store."""

    @property
    def revision(self) -> int:
        """The number of commits ever made."""
        ...

    def get(self, key: str) -> Entry | None: ...

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]: ...

    async def commit(self, changes: Sequence[Change]) -> int:
        """Apply all changes or none. Returns the new revision when the changes are durable. Raises Conflict."""
        ...

    async def erase_history(self) -> None:
        """Remove all values that later commits have replaced or removed from the disk. Raises StorageError."""
        ...

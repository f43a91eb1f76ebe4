"""The contract of a metadata store: get, list, compare-and-set."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

ABSENT = 0


class Entry(NamedTuple):
    """A JSON value and the revision of the store that wrote it."""

    value: Any
    revision: int


class Change(Struct, frozen=True):
    """Set `key` to `value` (None removes it), if it still has the expected revision (ABSENT: if it does not exist)."""

    key: str
    value: Any
    expected_revision: int


class Conflict(Exception):
    """Somebody else changed a key first; nothing of the commit was done."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by somebody else")
        self.key = key


class MetaStore(Protocol):
    @property
    def revision(self) -> int:
        """The number of commits ever made."""
        ...

    def get(self, key: str) -> Entry | None: ...

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]: ...

    async def commit(self, changes: Sequence[Change]) -> int:
        """All changes or none; returns the new revision once it is durable, raises Conflict."""
        ...

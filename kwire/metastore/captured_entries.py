"""The entries and leases of a metadata store at one moment, and their form in a journal."""

import asyncio
import marshal
from collections.abc import Iterator, Mapping
from typing import Any

from kwire.metastore.commits import encode_text
from kwire.metastore.interface import Entry

# Encoding an entry with some settings takes ten microseconds or more. After this many entries, the event loop runs
# other work.
ENTRIES_PER_CHUNK = 100


def unpack_entry(packed: bytes) -> Entry:
    return Entry(*marshal.loads(packed))


class CapturedEntries:
    """The entries of a store at one revision. The entries stay packed until they are read."""

    def __init__(
        self, revision: int, entries: Mapping[str, bytes], leases: Mapping[int, int], attached: Mapping[str, int]
    ) -> None:
        """`leases` has the time to live of each lease in seconds. `attached` has the lease id of each attached key."""
        self.revision = revision
        self._entries = entries
        self._leases = leases
        self._attached = attached

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        for key, packed in self._entries.items():
            if key.startswith(prefix):
                yield key, unpack_entry(packed)

    async def frames(self) -> list[bytes]:
        """Return one journal frame for each lease and each entry. The last frame has the store's revision.

        The frame of a lease has the revision of its grant, and the frame of an entry that of the entry.
        """
        frames = [
            _json({"revision": lease_id, "set": {}, "leases": {str(lease_id): ttl_seconds}})
            for lease_id, ttl_seconds in self._leases.items()
        ]
        for number, (key, packed) in enumerate(self._entries.items(), start=1):
            entry = unpack_entry(packed)
            frame = {"revision": entry.revision, "set": {key: entry.value}}
            lease_id = self._attached.get(key)
            frames.append(_json(frame if lease_id is None else {**frame, "attached": {key: lease_id}}))
            if number % ENTRIES_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return [*frames, _json({"revision": self.revision, "set": {}})]


def _json(frame: dict[str, Any]) -> bytes:
    return encode_text(frame).encode()

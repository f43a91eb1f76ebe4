"""RoomRecords: the rooms that this bridge has created, with the settings that a cluster cannot store.

An entry is valid for one incarnation of its topic. So a topic that somebody else created again under the same name is
not taken for a room of this bridge.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kwire.metastore import MetaStore
from kwire.metastore.grouped_writes import GroupedWrites
from kwire.streams.rooms.settings import RoomRetention

KEY_PREFIX = "bridge/rooms/"


class RoomRecord(NamedTuple):
    """What the bridge knows of a room. `incarnation` is the id of the topic that it has created."""

    incarnation: str
    created_ms: int
    retention: RoomRetention


class RoomRecords:
    """All records, by topic name. Use it only in the event loop's thread."""

    def __init__(self, metastore: MetaStore) -> None:
        self._records = {
            key.removeprefix(KEY_PREFIX): _record_of(entry.value) for key, entry in metastore.entries(KEY_PREFIX)
        }
        self._names = sorted(self._records)
        self._writes = GroupedWrites(metastore, self._value_of, lambda key, value: None)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, topic: str) -> RoomRecord | None:
        return self._records.get(topic)

    def has(self, topic: str, incarnation: str) -> bool:
        record = self._records.get(topic)
        return record is not None and record.incarnation == incarnation

    def names(self) -> Sequence[str]:
        """Return the topic names of all rooms, in order."""
        return self._names

    def names_from(self, first: str, count: int) -> Sequence[str]:
        begin = bisect_left(self._names, first)
        return self._names[begin : begin + count]

    def items(self) -> Iterator[tuple[str, RoomRecord]]:
        return iter(self._records.items())

    async def put(self, topic: str, record: RoomRecord) -> None:
        """Store a record durably. Raises StorageError."""
        if topic not in self._records:
            insort(self._names, topic)
        self._records[topic] = record
        await asyncio.shield(self._writes.request(KEY_PREFIX + topic))

    async def remove(self, topic: str) -> None:
        """Remove a record durably. Raises StorageError."""
        if self._records.pop(topic, None) is not None:
            del self._names[bisect_left(self._names, topic)]
            await asyncio.shield(self._writes.request(KEY_PREFIX + topic))

    async def close(self) -> None:
        """Wait for the writes that have begun."""
        await self._writes.idle()

    def _value_of(self, key: str) -> Any:
        record = self._records.get(key.removeprefix(KEY_PREFIX))
        if record is None:
            return None
        retention = record.retention
        return {
            "topic_id": record.incarnation,
            "created_ms": record.created_ms,
            "mode": retention.mode,
            "hours": retention.hours,
            "max_events": retention.max_events,
        }


def _record_of(value: Any) -> RoomRecord:
    retention = RoomRetention(value["mode"], value["hours"], value["max_events"])
    return RoomRecord(value["topic_id"], value["created_ms"], retention)

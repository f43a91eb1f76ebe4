"""A quiet node with rooms, and subscribers that a test counts itself."""

import asyncio
from collections import Counter
from pathlib import Path

from kwire.streams.log import StreamLog
from kwire.streams.rooms.cleanup import RoomCleanup
from kwire.streams.rooms.rooms import Room, Rooms
from storage.batch.record_batch import check_batch
from tests.support.batches import make_batch
from tests.support.node import QuietNode


class CountedSubscribers:
    """Who reads along, as the test says."""

    def __init__(self) -> None:
        self._counts: Counter[StreamLog] = Counter()

    def count_of(self, log: StreamLog) -> int:
        return self._counts[log]

    def come(self, log: StreamLog) -> None:
        self._counts[log] += 1

    def go(self, log: StreamLog) -> None:
        self._counts[log] -= 1


class RoomsNode(QuietNode):
    """`rooms` are made anew with each restart."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.subscribers = CountedSubscribers()
        super().__init__(directory, *settings)

    def _open(self) -> None:
        super()._open()
        self.rooms = Rooms(
            self.topics, self.config.rooms, self.subscribers, is_delete_allowed=self.config.topics.is_delete_allowed
        )

    def cleanup(self, fetched_before: dict[str, int] | None = None) -> RoomCleanup:
        """Somebody who cleans up, with a clean stop of the run before. For the running loop; close it."""
        return RoomCleanup(
            self.rooms,
            self.topics,
            self.subscribers,
            self.clock,
            self.store,
            self.files,
            self.groups.has_offsets_in,
            {} if fetched_before is None else fetched_before,
        )

    async def load_groups(self) -> None:
        """Until every shard is there nobody knows who has committed offsets."""
        self.groups.load()
        async with asyncio.timeout(10):
            while sum(1 for _ in self.groups.shards()) < self.groups.shard_count:
                await asyncio.sleep(0.001)


def add_events(room: Room, count: int = 1, timestamp_ms: int = 1_700_000_000_000) -> None:
    batch = make_batch(count, timestamp_ms=timestamp_ms)
    room.topic.partitions[0].append(batch, check_batch(batch))

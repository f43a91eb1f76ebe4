"""Groups with their lag, as the HTTP side tells of them: in portions, and never more than somebody asked for.

A node may have a hundred thousand groups and a group a hundred thousand offsets. So groups are gone through with a turn
for the loop between portions, and a report has so many offsets at most and says how many it left out.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from kwire.broker.lag import Lag, Lags, Reader
from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import CommittedOffset, FetchOffsets
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.views import GroupView, find_group, group_ids
from kwire.errors import ErrorCode, KafkaError

# A look at a group takes a microsecond or two; after this many the loop gets its turn.
GROUPS_PER_TURN = 500
REPORTS_PER_TURN = 100


class MeasuredOffset(NamedTuple):
    """`lag` is None when there is no such partition, or nobody knows yet."""

    topic: str
    partition: int
    committed: CommittedOffset
    lag: Lag | None


class GroupReport(NamedTuple):
    group: GroupView
    offsets: Sequence[MeasuredOffset]
    left_out_count: int

    @property
    def lag_offsets(self) -> int:
        """Of all partitions together, as far as it is known."""
        return sum(one.lag.offsets for one in self.offsets if one.lag is not None)

    @property
    def lag_seconds(self) -> float | None:
        """Of the partition that is furthest behind, as far as it is known; None if it is known of none."""
        return max((one.lag.seconds for one in self.offsets if one.lag and one.lag.seconds is not None), default=None)

    @property
    def unknown_count(self) -> int:
        """Offsets of which it is not known how far behind they are."""
        return sum(one.lag is None or one.lag.seconds is None for one in self.offsets)


class GroupReports:
    """What the HTTP resources know of groups. Called from the event loop."""

    def __init__(self, coordinator: GroupCoordinator, lags: Lags) -> None:
        self._coordinator = coordinator
        self._lags = lags
        # The groups whose lag has series of its own in /metrics, in the order in which they got them.
        self.with_series: dict[str, None] = {}

    @property
    def loading_count(self) -> int:
        """Shards that are not loaded yet; until it is none, groups are missing here."""
        return self._coordinator.shard_count - sum(1 for _ in self._coordinator.shards())

    async def find(self, group_id: str) -> GroupView | None:
        """The group as it is once all that its shard has decided is committed. Raises KafkaError if nobody knows."""
        asked = FetchOffsets(group_id=group_id, topics=())
        answer = answer_of(self._coordinator, asked, lambda answered: answered.error)
        error = await answer if isinstance(answer, Awaitable) else answer
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "the group is not loaded, or its state cannot be stored")
        return self._look_up(group_id)

    def _look_up(self, group_id: str) -> GroupView | None:
        for shard in self._coordinator.shards():
            found = find_group(shard, group_id)
            if found is not None:
                return found
        return None

    async def all(self) -> AsyncIterator[list[GroupView]]:
        """Every group, in portions and in no order; those that go meanwhile are left out."""
        for shard in list(self._coordinator.shards()):
            ids = group_ids(shard)
            for first in range(0, len(ids), GROUPS_PER_TURN):
                some = ids[first : first + GROUPS_PER_TURN]
                yield [group for one in some if (group := find_group(shard, one)) is not None]
                await asyncio.sleep(0)

    async def page(self, after: str | None, count: int) -> list[GroupView]:
        """The next groups behind `after`, in the order of their ids."""
        first: list[str] = []
        for shard in list(self._coordinator.shards()):
            ids = group_ids(shard)
            first = heapq.nsmallest(count, first + [one for one in ids if after is None or one > after])
            await asyncio.sleep(0)
        return [group for one in first if (group := self._look_up(one)) is not None]

    async def report(self, groups: Iterable[GroupView], offsets_max: int) -> list[GroupReport]:
        """Each with its offsets and their lag, as long as there is room for so many in all."""
        taken: list[tuple[GroupView, list[tuple[str, int, CommittedOffset]], int]] = []
        readers: list[Reader] = []
        for number, group in enumerate(groups, start=1):
            offsets = list(islice(group.offsets(), offsets_max - len(readers)))
            readers += [Reader(topic, partition, one.offset, one.topic_id) for topic, partition, one in offsets]
            taken.append((group, offsets, group.offset_count - len(offsets)))
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        lags = iter(await self._lags.measure(readers))
        reports = []
        for group, offsets, left_out in taken:
            reports.append(GroupReport(group, [MeasuredOffset(*one, next(lags)) for one in offsets], left_out))
            if len(reports) % REPORTS_PER_TURN == 0:
                await asyncio.sleep(0)
        return reports

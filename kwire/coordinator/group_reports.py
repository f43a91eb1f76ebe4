"""Reports on groups and their lag, computed in chunks. HTTP handlers, metrics and the console use them.

A node may have a hundred thousand groups, and a group may have a hundred thousand offsets. So the code yields to the
event loop between chunks, and the number of offsets in reports is limited. Each report says how many offsets it leaves
out.
"""

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from kwire.broker.admin.lag import Lag, Reader
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import CommittedOffset, FetchOffsets
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.views import GroupView, MemberView, find_group, group_ids
from kwire.errors import ErrorCode, KafkaError

# The code yields to the event loop after this many groups or reports. Looking up a group takes one or two microseconds.
GROUPS_PER_CHUNK = 500
REPORTS_PER_CHUNK = 100
# The same for groups on which the rights of a client are checked.
CHECKS_PER_CHUNK = 200


class ReportedGroup(Protocol):
    """A group, as it was when it was looked up."""

    group_id: str

    @property
    def kind(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def member_count(self) -> int: ...

    @property
    def offset_count(self) -> int: ...

    def members(self) -> Sequence[MemberView]: ...

    def offsets(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Return an iterator of (topic, partition, committed offset). Do not yield to the event loop while using it."""
        ...


class LagMeter(Protocol):
    """Measures the lag of readers; None if the partition does not exist or its offsets are unknown."""

    async def measure(self, readers: Sequence[Reader]) -> list[Lag | None]: ...

    async def offsets_behind(self, readers: Sequence[Reader]) -> list[int | None]:
        """Return the lag in offsets. Unlike `measure`, this reads no records."""
        ...


class MeasuredOffset(NamedTuple):
    """A committed offset with its lag. `lag` is None if the partition does not exist or was not measured yet."""

    topic: str
    partition: int
    committed: CommittedOffset
    lag: Lag | None


class GroupReport(NamedTuple):
    """A group with its committed offsets. `left_out_count` is the number of offsets that the report leaves out."""

    group: ReportedGroup
    offsets: Sequence[MeasuredOffset]
    left_out_count: int

    @property
    def lag_offsets(self) -> int:
        """The sum of the known lags of all partitions."""
        return sum(one.lag.offsets for one in self.offsets if one.lag is not None)

    @property
    def lag_seconds(self) -> float | None:
        """The largest known lag of a partition in seconds; None if no lag is known."""
        return max((one.lag.seconds for one in self.offsets if one.lag and one.lag.seconds is not None), default=None)

    @property
    def unknown_count(self) -> int:
        """The number of offsets in this report whose lag in seconds is not known."""
        return sum(one.lag is None or one.lag.seconds is None for one in self.offsets)


class TotalLag(NamedTuple):
    """The number of all groups, and the sum of their known lags."""

    group_count: int
    lag_records: int


class GroupReports(ABC):
    """Creates reports on groups. Methods may raise KafkaError. Use it only in the event loop's thread."""

    def __init__(self, lags: LagMeter) -> None:
        self._lags = lags

    @abstractmethod
    async def find(self, group_id: str) -> ReportedGroup | None:
        """Return the group; None if it does not exist. Raises KafkaError if the coordinator is unavailable."""

    @abstractmethod
    async def page(
        self, after: str | None, count: int, may_see: Callable[[str], bool] | None = None
    ) -> Sequence[ReportedGroup]:
        """Return up to `count` groups whose ids sort after `after`, in the order of their ids.

        With `may_see`, only groups for whose ids it returns True. Raises KafkaError if not all groups are known.
        """

    @abstractmethod
    def all(self) -> AsyncIterator[Sequence[ReportedGroup]]:
        """Generate all groups, in chunks and in no particular order, without groups that are deleted meanwhile."""

    @abstractmethod
    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic in an assignment; None if it was deleted."""

    async def total_lag(self, offsets_max: int) -> TotalLag:
        """Return the sum of the lags of the first `offsets_max` committed offsets."""
        group_count = 0
        readers: list[Reader] = []
        async for some in self.all():
            group_count += len(some)
            for group in some:
                offsets = islice(group.offsets(), offsets_max - len(readers))
                readers += [Reader(topic, partition, one.offset, one.topic_id) for topic, partition, one in offsets]
        lags = await self._lags.offsets_behind(readers)
        return TotalLag(group_count, sum(one for one in lags if one is not None))

    async def report(self, groups: Iterable[ReportedGroup], offsets_max: int) -> list[GroupReport]:
        """Return a report on each group with its committed offsets and their lag. All reports together have at most
        `offsets_max` offsets."""
        taken: list[tuple[ReportedGroup, list[tuple[str, int, CommittedOffset]], int]] = []
        readers: list[Reader] = []
        for number, group in enumerate(groups, start=1):
            offsets = list(islice(group.offsets(), offsets_max - len(readers)))
            readers += [Reader(topic, partition, one.offset, one.topic_id) for topic, partition, one in offsets]
            taken.append((group, offsets, group.offset_count - len(offsets)))
            if number % GROUPS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        lags = iter(await self._lags.measure(readers))
        reports = []
        for group, offsets, left_out in taken:
            reports.append(GroupReport(group, [MeasuredOffset(*one, next(lags)) for one in offsets], left_out))
            if len(reports) % REPORTS_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return reports


class LocalGroupReports(GroupReports):
    """Reports on the groups of this server's coordinator. `topic_name_of` returns the name of a topic id."""

    def __init__(
        self, coordinator: GroupCoordinator, lags: LagMeter, topic_name_of: Callable[[bytes], str | None]
    ) -> None:
        super().__init__(lags)
        self._coordinator = coordinator
        self._topic_name_of = topic_name_of
        # The ids of the groups that had their own series at the last scrape of /metrics, in the order of the series.
        self.with_series: dict[str, None] = {}

    def name_of(self, topic_id: bytes) -> str | None:
        return self._topic_name_of(topic_id)

    @property
    def loading_count(self) -> int:
        """The number of shards that are not loaded yet. Reports do not contain the groups of these shards."""
        return self._coordinator.shard_count - sum(1 for _ in self._coordinator.shards())

    async def find(self, group_id: str) -> GroupView | None:
        """Waits until the shard of the group has stored all its earlier decisions."""
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
        for shard in list(self._coordinator.shards()):
            ids = group_ids(shard)
            for first in range(0, len(ids), GROUPS_PER_CHUNK):
                some = ids[first : first + GROUPS_PER_CHUNK]
                yield [group for one in some if (group := find_group(shard, one)) is not None]
                await asyncio.sleep(0)

    async def page(
        self, after: str | None, count: int, may_see: Callable[[str], bool] | None = None
    ) -> list[GroupView]:
        if self.loading_count:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are still being loaded")
        first: list[str] = []
        for shard in list(self._coordinator.shards()):
            ids = [one for one in group_ids(shard) if after is None or one > after]
            if may_see is not None:
                ids = await visible_ids(ids, may_see)
            first = heapq.nsmallest(count, first + ids)
            await asyncio.sleep(0)
        return [group for one in first if (group := self._look_up(one)) is not None]


async def visible_ids(ids: Sequence[str], may_see: Callable[[str], bool]) -> list[str]:
    """Return the ids for which `may_see` returns True, with a yield to the event loop after each chunk."""
    found: list[str] = []
    for first in range(0, len(ids), CHECKS_PER_CHUNK):
        found += filter(may_see, ids[first : first + CHECKS_PER_CHUNK])
        await asyncio.sleep(0)
    return found

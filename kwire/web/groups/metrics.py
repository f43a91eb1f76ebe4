"""Metrics of the groups and their lag; a part of GET /metrics.

Any client can create groups, so the number of series is bounded. At most GROUP_SERIES_MAX groups and LAG_SERIES_MAX
partitions have their own series. A group whose name has more than GROUP_NAME_CHARS_MAX characters has none. The number
of groups and offsets without series is a metric too. The series of a deleted group disappear.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kwire.coordinator.group.views import GroupView
from kwire.coordinator.group_reports import GroupReport, LocalGroupReports
from kwire.web.monitoring.text_format import Sample, family_text, label_text

# The maximum number of groups with their own series, and of partitions with lag metrics. Each such partition has two
# series.
GROUP_SERIES_MAX = 1000
LAG_SERIES_MAX = 5000
GROUP_NAME_CHARS_MAX = 255


class MeasuredGroups(NamedTuple):
    """The groups at one scrape: their number by type and state, and the reports on the groups with their own series."""

    states: Mapping[tuple[str, str], int]
    offset_count: int
    loading_shard_count: int
    reports: Sequence[GroupReport]

    @property
    def left_out_groups(self) -> int:
        return sum(self.states.values()) - len(self.reports)

    @property
    def left_out_offsets(self) -> int:
        return max(0, self.offset_count - sum(len(report.offsets) for report in self.reports))


async def measure_groups(groups: LocalGroupReports) -> MeasuredGroups:
    """Choose the groups with their own series, and measure their lag."""
    states: Counter[tuple[str, str]] = Counter()
    active: dict[str, GroupView] = {}
    idle: dict[str, GroupView] = {}
    offset_count = 0
    async for some in groups.all():
        for group in some:
            states[group.kind, group.state] += 1
            offset_count += group.offset_count
            same_kind = active if group.member_count else idle
            has_room = len(same_kind) < GROUP_SERIES_MAX and len(group.group_id) <= GROUP_NAME_CHARS_MAX
            if has_room or group.group_id in groups.with_series:
                same_kind[group.group_id] = group
    chosen = _chosen(groups, active, idle)
    return MeasuredGroups(states, offset_count, groups.loading_count, await groups.report(chosen, LAG_SERIES_MAX))


async def group_text(measured: MeasuredGroups) -> bytes:
    """Return all metrics of groups in Prometheus' text format."""
    coordinator = [
        await family_text(
            "kwire_coordinator_groups",
            "Groups, by type and state.",
            (
                Sample(label_text(type=kind, state=state), count)
                for (kind, state), count in sorted(measured.states.items())
            ),
        ),
        await family_text(
            "kwire_coordinator_loading_shards",
            "Partitions of the offsets topic whose groups are not loaded yet.",
            [Sample("", measured.loading_shard_count)],
        ),
    ]
    series = await series_text(measured.reports, measured.left_out_groups, measured.left_out_offsets)
    return "".join(coordinator).encode() + series


async def series_text(reports: Sequence[GroupReport], left_out_groups: int, left_out_offsets: int) -> bytes:
    """Return the members and the lag of groups with their own series."""
    parts = [
        await family_text(
            "kwire_group_members",
            "Members of a group.",
            (Sample(label_text(group=one.group.group_id), one.group.member_count) for one in reports),
        ),
        await family_text(
            "kwire_group_lag_offsets",
            "Offsets between the committed offset of a group and the last stable offset.",
            _lag_samples(reports, in_seconds=False),
        ),
        await family_text(
            "kwire_group_lag_seconds",
            "Age of the first record after the committed offset of a group; 0 if there is none.",
            _lag_samples(reports, in_seconds=True),
        ),
        await family_text(
            "kwire_group_left_out_groups",
            "Groups without their own series, because there are too many or the name is too long.",
            [Sample("", left_out_groups)],
        ),
        await family_text(
            "kwire_group_lag_left_out_offsets",
            "Committed offsets without their own series.",
            [Sample("", left_out_offsets)],
        ),
        await family_text(
            "kwire_group_lag_unknown_offsets",
            "Committed offsets whose lag is not known, or not known yet.",
            [Sample("", sum(report.unknown_count for report in reports))],
        ),
    ]
    return "".join(parts).encode()


def _chosen(groups: LocalGroupReports, active: dict[str, GroupView], idle: dict[str, GroupView]) -> list[GroupView]:
    """Choose the groups with their own series. Groups with members come first, then groups without members. In both
    sets, groups that had series at the last scrape come first, so that series are stable."""
    candidates = [
        *(active[one] for one in groups.with_series if one in active),
        *(group for one, group in active.items() if one not in groups.with_series),
        *(idle[one] for one in groups.with_series if one in idle),
        *(group for one, group in idle.items() if one not in groups.with_series),
    ]
    chosen = candidates[:GROUP_SERIES_MAX]
    groups.with_series = dict.fromkeys(group.group_id for group in chosen)
    return chosen


def _lag_samples(reports: Sequence[GroupReport], *, in_seconds: bool) -> Iterable[Sample]:
    for report in reports:
        group_id = report.group.group_id
        for one in report.offsets:
            value = None if one.lag is None else one.lag.seconds if in_seconds else one.lag.offsets
            if value is not None:
                yield Sample(label_text(group=group_id, topic=one.topic, partition=str(one.partition)), value)

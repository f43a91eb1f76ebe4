"""Metrics of the groups and their lag; a part of GET /metrics.

Any client can create groups, so the number of series is bounded. At most GROUP_SERIES_MAX groups and LAG_SERIES_MAX
partitions have their own series. A group whose name has more than GROUP_NAME_CHARS_MAX characters has none. The number
of groups and offsets without series is a metric too. The series of a deleted group disappear.

This module writes Prometheus' text format itself, in chunks: with prometheus_client, ten thousand samples would block
the event loop for too long.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kwire.coordinator.group.views import GroupView
from kwire.web.groups.reports import GroupReport, GroupReports

# The maximum number of groups with their own series, and of partitions with lag metrics. Each such partition has two
# series.
GROUP_SERIES_MAX = 1000
LAG_SERIES_MAX = 5000
GROUP_NAME_CHARS_MAX = 255
SAMPLES_PER_CHUNK = 1000

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class _Sample(NamedTuple):
    labels: str
    value: float


async def group_text(groups: GroupReports) -> bytes:
    """Return all metrics of groups in Prometheus' text format."""
    states: Counter[tuple[str, str]] = Counter()
    active: dict[str, GroupView] = {}
    idle: dict[str, GroupView] = {}
    group_count = offset_count = 0
    async for some in groups.all():
        group_count += len(some)
        for group in some:
            states[group.kind, group.state] += 1
            offset_count += group.offset_count
            same_kind = active if group.member_count else idle
            has_room = len(same_kind) < GROUP_SERIES_MAX and len(group.group_id) <= GROUP_NAME_CHARS_MAX
            if has_room or group.group_id in groups.with_series:
                same_kind[group.group_id] = group
    chosen = _chosen(groups, active, idle)
    reports = await groups.report(chosen, LAG_SERIES_MAX)
    measured_count = sum(len(report.offsets) for report in reports)
    parts = [
        await _family(
            "kwire_coordinator_groups",
            "Groups, by type and state.",
            (_Sample(_labels(type=kind, state=state), count) for (kind, state), count in sorted(states.items())),
        ),
        await _family(
            "kwire_coordinator_loading_shards",
            "Partitions of the offsets topic whose groups are not loaded yet.",
            [_Sample("", groups.loading_count)],
        ),
        await _family(
            "kwire_group_members",
            "Members of a group.",
            (_Sample(_labels(group=group.group_id), group.member_count) for group in chosen),
        ),
        await _family(
            "kwire_group_lag_offsets",
            "Offsets between the committed offset of a group and the last stable offset.",
            _lag_samples(reports, in_seconds=False),
        ),
        await _family(
            "kwire_group_lag_seconds",
            "Age of the first record after the committed offset of a group; 0 if there is none.",
            _lag_samples(reports, in_seconds=True),
        ),
        await _family(
            "kwire_group_left_out_groups",
            "Groups without their own series, because there are too many or the name is too long.",
            [_Sample("", group_count - len(chosen))],
        ),
        await _family(
            "kwire_group_lag_left_out_offsets",
            "Committed offsets without their own series.",
            [_Sample("", max(0, offset_count - measured_count))],
        ),
        await _family(
            "kwire_group_lag_unknown_offsets",
            "Committed offsets whose lag is not known, or not known yet.",
            [_Sample("", sum(report.unknown_count for report in reports))],
        ),
    ]
    return "".join(parts).encode()


def _chosen(groups: GroupReports, active: dict[str, GroupView], idle: dict[str, GroupView]) -> list[GroupView]:
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


def _lag_samples(reports: Sequence[GroupReport], *, in_seconds: bool) -> Iterable[_Sample]:
    for report in reports:
        group_id = report.group.group_id
        for one in report.offsets:
            value = None if one.lag is None else one.lag.seconds if in_seconds else one.lag.offsets
            if value is not None:
                yield _Sample(_labels(group=group_id, topic=one.topic, partition=str(one.partition)), value)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


async def _family(name: str, help_text: str, samples: Iterable[_Sample]) -> str:
    """Return the text of a gauge with its samples; "" if there are no samples."""
    lines: list[str] = []
    for number, sample in enumerate(samples, start=1):
        lines.append(f"{name}{sample.labels} {float(sample.value)!r}\n")
        if number % SAMPLES_PER_CHUNK == 0:
            await asyncio.sleep(0)
    if not lines:
        return ""
    return f"# HELP {name} {help_text}\n# TYPE {name} gauge\n{''.join(lines)}"

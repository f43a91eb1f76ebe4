"""Groups and their lag as Prometheus series; a part of GET /metrics.

Anybody can make groups, so their series are bounded: so many groups, so many partitions of them, and no name that is
longer than a name should be. They vanish with the group. What has none is counted. They are written as text here, in
portions: ten thousand samples are too many for one turn of the loop.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kwire.coordinator.group.views import GroupView
from kwire.web.groups.reports import GroupReport, GroupReports

# Groups with series of their own, and partitions with a lag of their own, each of which is two series.
GROUP_SERIES_MAX = 1000
LAG_SERIES_MAX = 5000
GROUP_NAME_CHARS_MAX = 255
SAMPLES_PER_TURN = 1000

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class _Sample(NamedTuple):
    labels: str
    value: float


async def group_text(groups: GroupReports) -> bytes:
    """All families, in Prometheus' text format."""
    states: Counter[tuple[str, str]] = Counter()
    active: dict[str, GroupView] = {}
    idle: dict[str, GroupView] = {}
    group_count = offset_count = 0
    async for some in groups.all():
        group_count += len(some)
        for group in some:
            states[group.kind, group.state] += 1
            offset_count += group.offset_count
            like_it = active if group.member_count else idle
            has_room = len(like_it) < GROUP_SERIES_MAX and len(group.group_id) <= GROUP_NAME_CHARS_MAX
            if has_room or group.group_id in groups.with_series:
                like_it[group.group_id] = group
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
            "Offsets between what a group has committed and the last stable offset.",
            _lag_samples(reports, in_seconds=False),
        ),
        await _family(
            "kwire_group_lag_seconds",
            "How long ago the first record came that a group has not passed; 0 when it has caught up.",
            _lag_samples(reports, in_seconds=True),
        ),
        await _family(
            "kwire_group_left_out_groups",
            "Groups without series of their own, because there are too many or the name is too long.",
            [_Sample("", group_count - len(chosen))],
        ),
        await _family(
            "kwire_group_lag_left_out_offsets",
            "Committed offsets without series of their own.",
            [_Sample("", max(0, offset_count - measured_count))],
        ),
        await _family(
            "kwire_group_lag_unknown_offsets",
            "Committed offsets of which it is not known, or not yet, how far behind they are.",
            [_Sample("", sum(report.unknown_count for report in reports))],
        ),
    ]
    return "".join(parts).encode()


def _chosen(groups: GroupReports, active: dict[str, GroupView], idle: dict[str, GroupView]) -> list[GroupView]:
    """Active groups before idle ones, and of both first those that had series before: series should not come and go."""
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
    """A gauge with its samples; nothing without any."""
    lines: list[str] = []
    for number, sample in enumerate(samples, start=1):
        lines.append(f"{name}{sample.labels} {float(sample.value)!r}\n")
        if number % SAMPLES_PER_TURN == 0:
            await asyncio.sleep(0)
    if not lines:
        return ""
    return f"# HELP {name} {help_text}\n# TYPE {name} gauge\n{''.join(lines)}"

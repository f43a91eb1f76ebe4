"""GET /api/v1/groups lists all groups with their state and lag. GET /api/v1/groups/{group} describes one group: its
members, their assignments, and each committed offset with its lag.

The list is sorted by group id and has pages. A page has at most `limit` groups whose ids sort after `after`. `next` is
the `after` of the next page, null on the last page. A page has fewer than `limit` groups if `limit` groups together
would have more than OFFSETS_MAX offsets.

`lag_offsets` is the number of offsets from the committed offset to the last stable offset. `lag_seconds` is the age of
the first record after the committed offset, 0 if there is no such record. A lag is null if it is unknown. That is the
case if the partition does not exist, if the record has no timestamp, or if the record was not read from disk yet. Each
request reads a limited number of records from disk. A later request reads the others.

Errors are `{"error": {"code", "message"}}` with Kafka's name of the error code.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.broker.admin.lag import Lag
from kwire.coordinator.group.views import Assignment, MemberView
from kwire.coordinator.group_reports import GroupReport, MeasuredOffset
from kwire.errors import ErrorCode, KafkaError
from kwire.web.answers.errors import ErrorAnswer
from kwire.web.needs import DESCRIBE_GROUP, DESCRIBE_GROUPS, DESCRIBE_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.route import JSON, Answer, Route
from kwire.web.services import GroupServices

PAGE_GROUPS_MAX = 1000
# The maximum numbers of offsets and members in one answer. If a group has more, the answer says how many it leaves out.
OFFSETS_MAX = 10_000
MEMBERS_MAX = 10_000
# The handler yields to the event loop after this many list elements. Encoding an element takes some microseconds.
ELEMENTS_PER_CHUNK = 500
RETRY_AFTER_SECONDS = 1


async def list_groups(services: GroupServices, request: web.Request) -> web.Response:
    try:
        limit = int(request.query.get("limit", PAGE_GROUPS_MAX))
    except ValueError:
        limit = 0
    if not 1 <= limit <= PAGE_GROUPS_MAX:
        return _refusal(400, ErrorCode.INVALID_REQUEST, f"limit must be a number from 1 to {PAGE_GROUPS_MAX}")
    # Request one group more than `limit`: if it exists, there is a next page.
    access = access_of(request)
    may_see = partial(access.allows_group, Operation.DESCRIBE) if access.is_restricted else None
    after = request.query.get("after")
    try:
        groups = await services.reports.page(None if after is None else access.full_name(after), limit + 1, may_see)
    except KafkaError as error:
        return _unavailable(error.code, str(error))
    count = offset_count = 0
    for group in groups[:limit]:
        offset_count += group.offset_count
        if count and offset_count > OFFSETS_MAX:
            break
        count += 1
    reports = [_visible(access, one) for one in await services.reports.report(groups[:count], OFFSETS_MAX)]
    following = access.shown(groups[count - 1].group_id) if count < len(groups) else None
    return await _answer({"next": following}, {"groups": map(partial(_summary, access), reports)})


async def describe_group(services: GroupServices, request: web.Request) -> web.Response:
    group_id = request.match_info["group"]
    try:
        group = await services.reports.find(group_id)
    except KafkaError as error:
        return _unavailable(error.code, str(error))
    if group is None:
        return _refusal(404, ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
    members = group.members()
    access = access_of(request)
    report = _visible(access, (await services.reports.report([group], OFFSETS_MAX))[0])
    owners = _owners(services, access, members)
    committed = {(one.topic, one.partition) for one in report.offsets}
    # Assigned partitions without a committed offset. Their lag is unknown.
    uncommitted = [] if report.left_out_count else sorted(owners.keys() - committed)[: OFFSETS_MAX - len(committed)]
    offsets = sorted(report.offsets, key=lambda one: (one.topic, one.partition))
    return await _answer(
        _summary(access, report) | {"left_out_member_count": max(0, len(members) - MEMBERS_MAX)},
        {
            "members": (_member(services, access, one) for one in members[:MEMBERS_MAX]),
            "offsets": chain(
                (_offset(access, one, owners.get((one.topic, one.partition))) for one in offsets),
                (
                    _uncommitted(access.shown(topic), partition, owners[topic, partition])
                    for topic, partition in uncommitted
                ),
            ),
        },
    )


def _visible(access: RequestAccess, report: GroupReport) -> GroupReport:
    """Return the report without the offsets of topics that the client may not describe."""
    if not access.is_restricted:
        return report
    return report._replace(
        offsets=[one for one in report.offsets if access.allows_topic(Operation.DESCRIBE, one.topic)]
    )


def _summary(access: RequestAccess, report: GroupReport) -> dict[str, Any]:
    group = report.group
    return {
        "group_id": access.shown(group.group_id),
        "type": group.kind,
        "state": group.state,
        "member_count": group.member_count,
        "offset_count": len(report.offsets) + report.left_out_count,
        "left_out_offset_count": report.left_out_count,
        "unknown_lag_count": report.unknown_count,
        "lag_offsets": report.lag_offsets,
        "lag_seconds": report.lag_seconds,
    }


def _member(services: GroupServices, access: RequestAccess, member: MemberView) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "assignment": [
            {"topic": access.shown(topic), "partitions": list(partitions)}
            for topic, partitions in sorted(_named(services, access, member.assignment))
        ],
    }


def _named(
    services: GroupServices, access: RequestAccess, assignment: Assignment
) -> Iterator[tuple[str, Sequence[int]]]:
    """Generate the topic names and partitions of an assignment, without deleted topics and those that the client may
    not describe."""
    for topic, partitions in assignment.items():
        name = topic if isinstance(topic, str) else services.reports.name_of(topic)
        if name is not None and access.allows_topic(Operation.DESCRIBE, name):
            yield name, partitions


def _owners(
    services: GroupServices, access: RequestAccess, members: Sequence[MemberView]
) -> dict[tuple[str, int], str]:
    """Return the id of the member to which each partition is assigned."""
    return {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in _named(services, access, member.assignment)
        for partition in partitions
    }


def _offset(access: RequestAccess, measured: MeasuredOffset, member_id: str | None) -> dict[str, Any]:
    committed = measured.committed
    return {
        "topic": access.shown(measured.topic),
        "partition": measured.partition,
        "member_id": member_id,
        "committed_offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        # The coordinator of a cluster does not tell it.
        "commit_timestamp_ms": committed.commit_timestamp_ms if committed.commit_timestamp_ms >= 0 else None,
        **_lag(measured.lag),
    }


def _uncommitted(topic: str, partition: int, member_id: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "member_id": member_id,
        "committed_offset": None,
        "leader_epoch": None,
        "metadata": None,
        "commit_timestamp_ms": None,
        **_lag(None),
    }


def _lag(lag: Lag | None) -> dict[str, Any]:
    return {
        "log_start_offset": None if lag is None else lag.log_start_offset,
        "high_watermark": None if lag is None else lag.high_watermark,
        "lag_offsets": None if lag is None else lag.offsets,
        "lag_seconds": None if lag is None else lag.seconds,
    }


async def _answer(facts: dict[str, Any], lists: dict[str, Iterable[dict[str, Any]]]) -> web.Response:
    """Return an answer with one JSON object. The lists are encoded in chunks, with a yield to the event loop after each
    chunk."""
    parts = [json.dumps(facts)[:-1]]
    for name, elements in lists.items():
        parts.append(f", {json.dumps(name)}: [")
        left = iter(elements)
        separator = ""
        while some := list(islice(left, ELEMENTS_PER_CHUNK)):
            parts += [separator, json.dumps(some)[1:-1]]
            separator = ", "
            await asyncio.sleep(0)
        parts.append("]")
    parts.append("}")
    return web.Response(text="".join(parts), content_type="application/json")


def _unavailable(code: ErrorCode, message: str) -> web.Response:
    answer = _refusal(503, code, message)
    answer.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def _refusal(status: int, code: ErrorCode, message: str) -> web.Response:
    return web.json_response({"error": {"code": code.name, "message": message}}, status=status)


class GroupPage(msgspec.Struct, kw_only=True):
    """The query of a page: at most `limit` groups whose ids sort after `after`."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_GROUPS_MAX)] = PAGE_GROUPS_MAX


class GroupSummary(msgspec.Struct, kw_only=True):
    group_id: str
    type: str
    state: str
    member_count: int
    offset_count: int
    left_out_offset_count: int
    unknown_lag_count: int
    lag_offsets: int
    lag_seconds: float | None


class GroupList(msgspec.Struct, kw_only=True):
    """A page of groups. `next` is the `after` of the next page, null on the last page."""

    next: str | None
    groups: list[GroupSummary]


class AssignedPartitions(msgspec.Struct, kw_only=True):
    topic: str
    partitions: list[int]


class GroupMember(msgspec.Struct, kw_only=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[AssignedPartitions]


class GroupOffset(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    member_id: str | None
    committed_offset: int | None
    leader_epoch: int | None
    metadata: str | None
    commit_timestamp_ms: int | None
    log_start_offset: int | None
    high_watermark: int | None
    lag_offsets: int | None
    lag_seconds: float | None


class GroupDescription(GroupSummary, kw_only=True):
    left_out_member_count: int
    members: list[GroupMember]
    offsets: list[GroupOffset]


_LOADING = Answer("The groups are still being loaded.", {JSON: ErrorAnswer})

ROUTES: tuple[Route[GroupServices], ...] = (
    Route(
        "GET",
        "/api/v1/groups",
        list_groups,
        summary="List all groups with their state and lag",
        tag="groups",
        query=GroupPage,
        answers={200: GroupList, 503: _LOADING},
        needs=(DESCRIBE_GROUPS, DESCRIBE_TOPICS),
    ),
    Route(
        "GET",
        "/api/v1/groups/{group}",
        describe_group,
        summary="Describe a group: members, offsets and lag",
        tag="groups",
        answers={200: GroupDescription, 503: _LOADING},
        needs=(DESCRIBE_GROUP, DESCRIBE_TOPICS),
    ),
)

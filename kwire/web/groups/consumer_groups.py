"""Consumer groups over HTTP: /consumer-groups/{group} and the paths below it.

A group reads one topic. The group's strategy determines which partitions each member gets. A member joins, requests its
assignment, reads its partitions, commits offsets and sends heartbeats. It reads with `POST
/topics/{topic}/partitions/{partition}/consume` or with the member's stream. Reading does not change the committed
offsets. A commit names the offset of the last processed event plus one.

Partitions are reassigned when members join, leave or time out. A revoked partition is assigned to another member only
after its owner has confirmed the release. The owner confirms the release with its next heartbeat, or with its next
request for its assignment. `state` is `rebalancing` while partitions are being reassigned. `generation` increases with
every change of the assignment. A commit that names a member is refused if the member was removed. If the commit also
names an outdated generation, it is accepted only for partitions that the member already had at that generation. A
commit that names neither a member nor a generation is administrative. It is refused only if the group has members of
Kafka's classic protocol.

The coordinator is the same as for Kafka clients. Kafka's tools show these groups, and a Kafka consumer may join them.
"""

import asyncio
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.coordinator.group.definitions import GroupDefinition
from kwire.coordinator.web_groups.groups import WebGroups
from kwire.coordinator.web_groups.values import (
    GROUP_ID_LENGTH_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    MemberStatus,
)
from kwire.web.answers.errors import Refusal
from kwire.web.needs import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_GROUPS, DESCRIBE_TOPICS, READ_GROUP, READ_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import (
    body_of,
    check_is_json,
    decoded,
    json_answer,
    number_in_path,
    query_of,
    raw_body_of,
)
from kwire.web.requests.origin_policy import check_name
from kwire.web.route import Route
from kwire.web.services import GroupServices

PAGE_GROUPS_MAX = 1000
PAGE_GROUPS_DEFAULT = 100
# The handler yields to the event loop after checking the rights on this many groups. Each takes some microseconds.
GROUPS_PER_CHUNK = 200
OFFSET_MAX = 2**63 - 1
GENERATION_MAX = 2**31 - 1
PARTITION_MAX = 2**31 - 1
MEMBER_ID_LENGTH_MAX = 256
TOPIC_LENGTH_MAX = 249

State = Literal["stable", "rebalancing"]
SessionTimeout = Annotated[
    int,
    msgspec.Meta(
        ge=SESSION_TIMEOUT_MS_MIN // 1000,
        le=SESSION_TIMEOUT_MS_MAX // 1000,
        description="A member that sends no heartbeat for this long is removed.",
    ),
]
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=GROUP_ID_LENGTH_MAX, pattern="^(?!__)")]
MemberName = Annotated[str, msgspec.Meta(min_length=1, max_length=MEMBER_ID_LENGTH_MAX)]
PATH = {"group": GroupName}
MEMBER_PATH = {"group": GroupName, "member": MemberName}


class NewGroup(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    partition_count: (
        Annotated[
            int,
            msgspec.Meta(ge=1, le=PARTITION_MAX, description="If present, the topic must have this many partitions."),
        ]
        | None
    ) = None
    strategy: Literal["round_robin", "range", "sticky"] | None = None
    session_timeout_secs: SessionTimeout | None = None


class CreatedGroup(msgspec.Struct, kw_only=True):
    success: bool
    group_id: str
    topic: str
    strategy: str
    session_timeout_secs: int


class GroupsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[str, msgspec.Meta(description="Only groups that sort after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_GROUPS_MAX)] = PAGE_GROUPS_DEFAULT


class ListedGroup(msgspec.Struct, kw_only=True):
    group_id: str
    topic: str
    strategy: str
    session_timeout_secs: int


class GroupList(msgspec.Struct, kw_only=True):
    """A page of groups. `next` is the `after` of the next page, null on the last page."""

    groups: list[ListedGroup]
    next: str | None


class DeletedGroup(msgspec.Struct, kw_only=True):
    success: bool
    group_id: str


class Join(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    session_timeout_secs: SessionTimeout | None = None


class JoinedGroup(msgspec.Struct, kw_only=True):
    """The result of joining a group. The member uses `member_id` in all its further requests."""

    member_id: str
    group_id: str
    generation: int


class MemberAssignment(msgspec.Struct, kw_only=True):
    member_id: str
    group_id: str
    partitions: list[int]
    generation: int
    state: State


class HeartbeatAnswer(msgspec.Struct, kw_only=True):
    success: bool
    generation: int
    state: State


class Commit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An offset to commit. `offset` is the next offset to read: the offset of the last processed event plus one."""

    partition_id: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
    member_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MEMBER_ID_LENGTH_MAX)] | None = None
    generation: Annotated[int, msgspec.Meta(ge=0, le=GENERATION_MAX)] | None = None


class Committed(msgspec.Struct, kw_only=True):
    success: bool
    partition_id: int
    offset: int


class CommittedOffset(msgspec.Struct, kw_only=True):
    """The committed offset of a partition. `offset` is null if the group has not committed an offset."""

    group_id: str
    partition_id: int
    offset: int | None


class LeftGroup(msgspec.Struct, kw_only=True):
    success: bool
    member_id: str


class ShownStats(msgspec.Struct, kw_only=True):
    """Statistics of a group. `state` is Kafka's name of the group's state. `last_rebalance_secs` is the number of
    seconds since the last rebalance, null if there was none."""

    group_id: str
    topic: str
    state: str
    member_count: int
    generation: int
    partition_count: int
    committed_partitions: int
    last_rebalance_secs: int | None


def groups_of(services: GroupServices) -> WebGroups:
    if not services.port.config.rest_groups.is_enabled:
        raise Refusal(
            "consumer groups over HTTP are disabled: set kwire.rest.groups.enable to true",
            code="GroupsDisabled",
            status=403,
        )
    return services.web_groups


async def create_group(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    asked = await body_of(request, NewGroup)
    check_name(asked.topic)
    access = access_of(request)
    topic = access.full_name(asked.topic)
    access.authorize_topic(Operation.READ, topic)
    definition, is_new = await groups.create(
        request.match_info["group"],
        topic,
        partition_count=asked.partition_count,
        strategy=asked.strategy,
        session_timeout_ms=_milliseconds(asked.session_timeout_secs),
    )
    answer = CreatedGroup(
        success=True,
        group_id=access.shown(definition.group_id),
        topic=access.shown(definition.topic),
        strategy=definition.strategy,
        session_timeout_secs=definition.session_timeout_ms // 1000,
    )
    return json_answer(answer, 201 if is_new else 200)


async def list_groups(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    query = query_of(request, GroupsQuery)
    # Request one group more than `limit`: if it exists, there is a next page.
    access = access_of(request)
    if access.is_restricted:
        page = await _visible_page(groups, access, access.full_name(query.after), query.limit + 1)
    else:
        page = groups.page(query.after, query.limit + 1)
    listed = [
        ListedGroup(
            group_id=access.shown(one.group_id),
            topic=access.shown(one.topic),
            strategy=one.strategy,
            session_timeout_secs=one.session_timeout_ms // 1000,
        )
        for one in page[: query.limit]
    ]
    return json_answer(GroupList(groups=listed, next=listed[-1].group_id if len(page) > query.limit else None))


async def _visible_page(groups: WebGroups, access: RequestAccess, after: str, count: int) -> list[GroupDefinition]:
    """Return up to `count` groups that the client may describe and whose ids sort after `after`."""
    found: list[GroupDefinition] = []
    while page := groups.page(after, GROUPS_PER_CHUNK):
        found += [one for one in page if access.allows_group(Operation.DESCRIBE, one.group_id)]
        after = page[-1].group_id
        if len(found) >= count or (access.scope is not None and not access.scope.contains(after)):
            # There are enough groups, or the groups of the client's scope end on this page.
            return found[:count]
        await asyncio.sleep(0)
    return found


def _authorize_topic(request: web.Request, groups: WebGroups, operation: Operation) -> None:
    """Check the right to the topic that the group reads. Raises KafkaError if the group does not exist."""
    access_of(request).authorize_topic(operation, groups.find(request.match_info["group"]).topic)


async def delete_group(services: GroupServices, request: web.Request) -> web.Response:
    group_id = request.match_info["group"]
    await groups_of(services).delete(group_id)
    return json_answer(DeletedGroup(success=True, group_id=access_of(request).shown(group_id)))


async def join(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, Join) if raw else Join()
    group_id = request.match_info["group"]
    _authorize_topic(request, groups, Operation.READ)
    joined = await groups.join(
        group_id,
        session_timeout_ms=_milliseconds(asked.session_timeout_secs),
        client_host=request.remote or "",
    )
    shown_id = access_of(request).shown(group_id)
    return json_answer(JoinedGroup(member_id=joined.member_id, group_id=shown_id, generation=joined.generation))


async def assignment(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    group_id, member_id = request.match_info["group"], request.match_info["member"]
    _authorize_topic(request, groups, Operation.READ)
    member_status = await groups.heartbeat(group_id, member_id)
    return json_answer(
        MemberAssignment(
            member_id=member_id,
            group_id=access_of(request).shown(group_id),
            partitions=list(member_status.partitions),
            generation=member_status.generation,
            state=state_of(member_status),
        )
    )


async def heartbeat(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    _authorize_topic(request, groups, Operation.READ)
    member_status = await groups.heartbeat(request.match_info["group"], request.match_info["member"])
    return json_answer(
        HeartbeatAnswer(success=True, generation=member_status.generation, state=state_of(member_status))
    )


async def leave(services: GroupServices, request: web.Request) -> web.Response:
    member_id = request.match_info["member"]
    await groups_of(services).leave(request.match_info["group"], member_id)
    return json_answer(LeftGroup(success=True, member_id=member_id))


async def commit(services: GroupServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    asked = await body_of(request, Commit)
    _authorize_topic(request, groups, Operation.READ)
    await groups.commit(
        request.match_info["group"],
        [(asked.partition_id, asked.offset)],
        member_id=asked.member_id,
        generation=asked.generation,
    )
    return json_answer(Committed(success=True, partition_id=asked.partition_id, offset=asked.offset))


async def committed(services: GroupServices, request: web.Request) -> web.Response:
    group_id, partition_id = request.match_info["group"], number_in_path(request, "partition")
    groups = groups_of(services)
    _authorize_topic(request, groups, Operation.DESCRIBE)
    (offset,) = await groups.committed(group_id, [partition_id])
    shown_id = access_of(request).shown(group_id)
    return json_answer(CommittedOffset(group_id=shown_id, partition_id=partition_id, offset=offset))


async def stats(services: GroupServices, request: web.Request) -> web.Response:
    group_id = request.match_info["group"]
    found = await groups_of(services).stats(group_id)
    access = access_of(request)
    state = found.state
    since_ms = state.rebalanced_ms_ago
    return json_answer(
        ShownStats(
            group_id=access.shown(group_id),
            topic=access.shown(found.topic),
            state=state.state,
            member_count=state.member_count,
            generation=state.generation,
            partition_count=found.partition_count,
            committed_partitions=state.committed_partitions,
            last_rebalance_secs=None if since_ms is None else since_ms // 1000,
        )
    )


def state_of(member_status: MemberStatus) -> State:
    return "rebalancing" if member_status.is_rebalancing else "stable"


def _milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


TAG = "consumer groups"

ROUTES: tuple[Route[GroupServices], ...] = (
    # Routes are tried in order, so the most frequent one is first.
    Route(
        "POST",
        "/consumer-groups/{group}/offsets/commit",
        commit,
        "Commit the offset of a partition",
        "Answered when the commit is durable. An outdated `member_id` or `generation` is refused (404, 409).",
        tag=TAG,
        parameters=PATH,
        request=Commit,
        answers={200: Committed},
        needs=(READ_GROUP, READ_TOPICS),
    ),
    Route(
        "GET",
        "/consumer-groups",
        list_groups,
        "List the groups",
        tag=TAG,
        query=GroupsQuery,
        answers={200: GroupList},
        needs=(DESCRIBE_GROUPS,),
    ),
    Route(
        "POST",
        "/consumer-groups/{group}",
        create_group,
        "Create a group that reads a topic",
        "If the group exists with the same settings, the status is 200; if its settings differ, 409.",
        tag=TAG,
        parameters=PATH,
        request=NewGroup,
        answers={201: CreatedGroup, 200: CreatedGroup},
        needs=(READ_GROUP, READ_TOPICS),
    ),
    Route(
        "DELETE",
        "/consumer-groups/{group}",
        delete_group,
        "Delete a group without members, and its offsets",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedGroup},
        needs=(DELETE_GROUP,),
    ),
    Route(
        "POST",
        "/consumer-groups/{group}/join",
        join,
        "Join as a new member",
        tag=TAG,
        parameters=PATH,
        request=Join,
        answers={200: JoinedGroup},
        needs=(READ_GROUP, READ_TOPICS),
    ),
    Route(
        "GET",
        "/consumer-groups/{group}/members/{member}/assignment",
        assignment,
        "The partitions assigned to a member",
        "The request counts as a heartbeat, and confirms that the member has released its revoked partitions.",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: MemberAssignment},
        needs=(READ_GROUP, READ_TOPICS),
    ),
    Route(
        "POST",
        "/consumer-groups/{group}/members/{member}/heartbeat",
        heartbeat,
        "Send the heartbeat of a member",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: HeartbeatAnswer},
        needs=(READ_GROUP, READ_TOPICS),
    ),
    Route(
        "DELETE",
        "/consumer-groups/{group}/members/{member}/leave",
        leave,
        "Leave the group; the member's partitions are reassigned immediately",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: LeftGroup},
        needs=(READ_GROUP,),
    ),
    Route(
        "GET",
        # The pattern excludes `commit`, so that a GET of /offsets/commit is answered with 405.
        "/consumer-groups/{group}/offsets/{partition:(?!commit$)[^/]+}",
        committed,
        "The committed offset of a partition",
        tag=TAG,
        parameters={**PATH, "partition": Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]},
        answers={200: CommittedOffset},
        needs=(DESCRIBE_GROUP, DESCRIBE_TOPICS),
    ),
    Route(
        "GET",
        "/consumer-groups/{group}/stats",
        stats,
        "State and statistics of a group",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownStats},
        needs=(DESCRIBE_GROUP,),
    ),
)

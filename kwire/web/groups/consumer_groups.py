"""Consumer groups over HTTP: /consumer-groups/{group} and what is below it.

A group reads one topic; its members share the partitions by the group's strategy. A member joins, asks for its
partitions, reads them (`POST /topics/{topic}/partitions/{partition}/consume`, or the group's stream), commits, and says
by heartbeats that it is alive. Reads move nothing; only a commit does, and what it says is the offset of the last event
that was processed, plus one.

Partitions move when members come, go or fall silent. A member's heartbeat, and its question for its partitions, says
that it has let go of those that are not its own any more; only then does another member get them. `state` is
`rebalancing` as long as something is still to come. `generation` rises with every change: a commit that carries it is
refused when it comes from a member that was put out meanwhile; one that names neither member nor generation is an
administrator's, and is always taken.

These are groups of the same coordinator that Kafka's clients use, so their tools see them, and a Kafka consumer may
join one.
"""

from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.coordinator.web_groups import (
    GROUP_ID_LENGTH_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    Standing,
    WebGroups,
)
from kwire.web.bodies import body_of, check_is_json, decoded, json_answer, number_in_path, query_of, raw_body_of
from kwire.web.errors import Refusal
from kwire.web.route import Route
from kwire.web.safety import check_name
from kwire.web.services import WebServices

PAGE_GROUPS_MAX = 1000
PAGE_GROUPS_DEFAULT = 100
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
        description="A member that is silent for so long is out.",
    ),
]
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=GROUP_ID_LENGTH_MAX, pattern="^(?!__)")]
MemberName = Annotated[str, msgspec.Meta(min_length=1, max_length=MEMBER_ID_LENGTH_MAX)]
PATH = {"group": GroupName}
MEMBER_PATH = {"group": GroupName, "member": MemberName}


class NewGroup(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    partition_count: (
        Annotated[int, msgspec.Meta(ge=1, le=PARTITION_MAX, description="If it is given, the topic must have as many.")]
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
    after: Annotated[str, msgspec.Meta(description="The group behind which the page begins.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_GROUPS_MAX)] = PAGE_GROUPS_DEFAULT


class ListedGroup(msgspec.Struct, kw_only=True):
    group_id: str
    topic: str
    strategy: str
    session_timeout_secs: int


class GroupList(msgspec.Struct, kw_only=True):
    """`next` is what to give as `after` for the page that follows."""

    groups: list[ListedGroup]
    next: str | None


class DeletedGroup(msgspec.Struct, kw_only=True):
    success: bool
    group_id: str


class Join(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    session_timeout_secs: SessionTimeout | None = None


class JoinedGroup(msgspec.Struct, kw_only=True):
    """`member_id` is what every further request of this member carries."""

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
    """`offset` is where to go on: that of the last event that was processed, plus one."""

    partition_id: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
    member_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MEMBER_ID_LENGTH_MAX)] | None = None
    generation: Annotated[int, msgspec.Meta(ge=0, le=GENERATION_MAX)] | None = None


class Committed(msgspec.Struct, kw_only=True):
    success: bool
    partition_id: int
    offset: int


class CommittedOffset(msgspec.Struct, kw_only=True):
    """`offset` is null where nothing was committed."""

    group_id: str
    partition_id: int
    offset: int | None


class LeftGroup(msgspec.Struct, kw_only=True):
    success: bool
    member_id: str


class ShownStats(msgspec.Struct, kw_only=True):
    """`state` is Kafka's word for it. `last_rebalance_secs` is how long ago, null if there was none."""

    group_id: str
    topic: str
    state: str
    member_count: int
    generation: int
    partition_count: int
    committed_partitions: int
    last_rebalance_secs: int | None


def groups_of(services: WebServices) -> WebGroups:
    if not services.config.rest_groups.is_enabled:
        raise Refusal(
            "consumer groups are not served over HTTP here: kwire.rest.groups.enable is false",
            code="GroupsDisabled",
            status=403,
        )
    return services.web_groups


async def create_group(services: WebServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    asked = await body_of(request, NewGroup)
    check_name(asked.topic)
    definition, is_new = await groups.create(
        request.match_info["group"],
        asked.topic,
        partition_count=asked.partition_count,
        strategy=asked.strategy,
        session_timeout_ms=_milliseconds(asked.session_timeout_secs),
    )
    answer = CreatedGroup(
        success=True,
        group_id=definition.group_id,
        topic=definition.topic,
        strategy=definition.strategy,
        session_timeout_secs=definition.session_timeout_ms // 1000,
    )
    return json_answer(answer, 201 if is_new else 200)


async def list_groups(services: WebServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    query = query_of(request, GroupsQuery)
    # One more than asked for, to know whether there is a next page.
    page = groups.page(query.after, query.limit + 1)
    listed = [
        ListedGroup(
            group_id=one.group_id,
            topic=one.topic,
            strategy=one.strategy,
            session_timeout_secs=one.session_timeout_ms // 1000,
        )
        for one in page[: query.limit]
    ]
    return json_answer(GroupList(groups=listed, next=listed[-1].group_id if len(page) > query.limit else None))


async def delete_group(services: WebServices, request: web.Request) -> web.Response:
    group_id = request.match_info["group"]
    await groups_of(services).delete(group_id)
    return json_answer(DeletedGroup(success=True, group_id=group_id))


async def join(services: WebServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, Join) if raw else Join()
    group_id = request.match_info["group"]
    joined = await groups.join(
        group_id,
        session_timeout_ms=_milliseconds(asked.session_timeout_secs),
        client_host=request.remote or "",
    )
    return json_answer(JoinedGroup(member_id=joined.member_id, group_id=group_id, generation=joined.generation))


async def assignment(services: WebServices, request: web.Request) -> web.Response:
    group_id, member_id = request.match_info["group"], request.match_info["member"]
    standing = await groups_of(services).check_in(group_id, member_id)
    return json_answer(
        MemberAssignment(
            member_id=member_id,
            group_id=group_id,
            partitions=list(standing.partitions),
            generation=standing.generation,
            state=state_of(standing),
        )
    )


async def heartbeat(services: WebServices, request: web.Request) -> web.Response:
    standing = await groups_of(services).check_in(request.match_info["group"], request.match_info["member"])
    return json_answer(HeartbeatAnswer(success=True, generation=standing.generation, state=state_of(standing)))


async def leave(services: WebServices, request: web.Request) -> web.Response:
    member_id = request.match_info["member"]
    await groups_of(services).leave(request.match_info["group"], member_id)
    return json_answer(LeftGroup(success=True, member_id=member_id))


async def commit(services: WebServices, request: web.Request) -> web.Response:
    groups = groups_of(services)
    asked = await body_of(request, Commit)
    await groups.commit(
        request.match_info["group"],
        [(asked.partition_id, asked.offset)],
        member_id=asked.member_id,
        generation=asked.generation,
    )
    return json_answer(Committed(success=True, partition_id=asked.partition_id, offset=asked.offset))


async def committed(services: WebServices, request: web.Request) -> web.Response:
    group_id, partition_id = request.match_info["group"], number_in_path(request, "partition")
    (offset,) = await groups_of(services).committed(group_id, [partition_id])
    return json_answer(CommittedOffset(group_id=group_id, partition_id=partition_id, offset=offset))


async def stats(services: WebServices, request: web.Request) -> web.Response:
    group_id = request.match_info["group"]
    found = await groups_of(services).stats(group_id)
    since_ms = found.rebalanced_ms_ago
    return json_answer(
        ShownStats(
            group_id=group_id,
            topic=found.topic,
            state=found.state,
            member_count=found.member_count,
            generation=found.generation,
            partition_count=found.partition_count,
            committed_partitions=found.committed_partitions,
            last_rebalance_secs=None if since_ms is None else since_ms // 1000,
        )
    )


def state_of(standing: Standing) -> State:
    return "rebalancing" if standing.is_rebalancing else "stable"


def _milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


TAG = "consumer groups"

ROUTES: tuple[Route, ...] = (
    # Paths are tried one after the other, so the one that is asked most stands first.
    Route(
        "POST",
        "/consumer-groups/{group}/offsets/commit",
        commit,
        "Commit how far a partition was processed",
        "Answered when it is on disk. A `member_id` or `generation` that is not current is refused (404, 409).",
        tag=TAG,
        parameters=PATH,
        request=Commit,
        answers={200: Committed},
    ),
    Route("GET", "/consumer-groups", list_groups, "All groups", tag=TAG, query=GroupsQuery, answers={200: GroupList}),
    Route(
        "POST",
        "/consumer-groups/{group}",
        create_group,
        "Create a group that reads a topic",
        "The same request again is answered 200; a group of this name that is different is a 409.",
        tag=TAG,
        parameters=PATH,
        request=NewGroup,
        answers={201: CreatedGroup, 200: CreatedGroup},
    ),
    Route(
        "DELETE",
        "/consumer-groups/{group}",
        delete_group,
        "Delete a group without members, and its offsets",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedGroup},
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
    ),
    Route(
        "GET",
        "/consumer-groups/{group}/members/{member}/assignment",
        assignment,
        "The partitions of a member",
        "Asking counts as a heartbeat, and lets go of partitions that are not the member's any more.",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: MemberAssignment},
    ),
    Route(
        "POST",
        "/consumer-groups/{group}/members/{member}/heartbeat",
        heartbeat,
        "Say that a member is alive",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: HeartbeatAnswer},
    ),
    Route(
        "DELETE",
        "/consumer-groups/{group}/members/{member}/leave",
        leave,
        "Leave; the member's partitions go to the others at once",
        tag=TAG,
        parameters=MEMBER_PATH,
        answers={200: LeftGroup},
    ),
    Route(
        "GET",
        # All but the path that commits: it takes no GET, and says so.
        "/consumer-groups/{group}/offsets/{partition:(?!commit$)[^/]+}",
        committed,
        "Where to go on in a partition",
        tag=TAG,
        parameters={**PATH, "partition": Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]},
        answers={200: CommittedOffset},
    ),
    Route(
        "GET",
        "/consumer-groups/{group}/stats",
        stats,
        "How a group stands",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownStats},
    ),
)

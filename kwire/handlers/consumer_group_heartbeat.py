"""ConsumerGroupHeartbeat 0-1: a member joins, stays in or leaves a group of the consumer protocol (KIP-848).

- A member sends epoch 0 to join, its current epoch to stay in the group, -1 to leave, and -2 to leave as a static
  member that intends to return. A null field of the request has the value of the previous heartbeat. The response has
  an assignment only if the assignment changed.
- The client needs READ on the group, and DESCRIBE on each topic that it subscribes to by name. A regular expression
  matches only the topics that the client may describe. When its rights change, its next heartbeat finds the new topics.
- Members of a group in a scope use the plain names of the scope. A regular expression matches plain names.
- While the feature group.version is at level 0, the error is UNSUPPORTED_VERSION.
- Version 1 adds subscriptions by regular expression. In version 1 the member generates its own id (KIP-1082); in
  version 0 the server generates the id and returns it.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.access.scope import prefix_of
from kwire.concurrency.chunking import eager, spread
from kwire.coordinator.client_requests import answer_of, resolved_answer
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.regexes import TopicAccess
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

# At level 0 of this feature the consumer protocol is disabled for the whole cluster.
FEATURE = "group.version"
FIRST_VERSION_OF_MEMBERS_OWN_IDS = 1


def handle(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if not context.services.features.level(FEATURE):
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    return eager(_answer(context, request))


async def _answer(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    try:
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as error:
        return _refusal(error.code)
    names = None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)
    topic_access = _topic_access(context)
    if names and topic_access is not None:
        async for name in spread(names):
            if not context.topics.permits(Operation.DESCRIBE, name):
                return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    prefix = prefix_of(request.group_id) if names else ""
    if names and prefix and not all([one.startswith(prefix) async for one in spread(names)]):
        # Only an administrator can get here: clients of the scope have no names of other topics.
        return _refusal(ErrorCode.INVALID_REQUEST, "Members of a group in a scope can only subscribe to its topics.")
    command = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=await _owned(request),
        client_id=context.client_id or "",
        # The format of Java's InetAddress, which Kafka's tools show and expect.
        client_host=f"/{context.client_host}",
        brings_member_id=context.api_version >= FIRST_VERSION_OF_MEMBERS_OWN_IDS,
        fresh_id="" if request.member_id else groups.fresh_id(),
        topic_access=topic_access,
    )
    return await resolved_answer(answer_of(groups, command, _response))


def _topic_access(context: Context) -> TopicAccess | None:
    allows = context.views.topic_filter
    if allows is None:
        return None
    access = context.access
    return TopicAccess((access.principal, access.host), access.revision, allows)


def _refusal(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


async def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, list[int]] = {}
    async for one in spread(request.topic_partitions):
        owned.setdefault(one.topic_id, []).extend(one.partitions)
    return owned


def _response(answer: ConsumerHeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in answer.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )

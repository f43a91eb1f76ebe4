"""JoinGroup 0-9: join the next generation of a classic group. The response is sent when the generation begins.

- The client needs READ on the group.
- Version 1 adds a rebalance timeout; in version 0 the session timeout is also the rebalance timeout. Version 2 adds the
  throttle time.
- From version 4 on a new member first gets its id, with the error MEMBER_ID_REQUIRED, and then joins with this id.
  Version 5 adds the group instance id of static members.
- Version 7 adds the protocol type to the response. On an error the protocol name is null; in earlier versions it is
  empty.
- More than PROTOCOLS_MAX protocols are INVALID_REQUEST. If the metadata of a member or of a group is too large, the
  error is GROUP_MAX_SIZE_REACHED (`coordinator/group/classic/metadata_budget.py`). If the metadata of all groups is too
  large, the error is COORDINATOR_NOT_AVAILABLE.
- Version 8 adds a reason, a text for people. Version 9 adds skip_assignment: a static leader that rejoins must not
  compute a new assignment.
"""

from collections.abc import Awaitable

from kwire.access.acl import Operation
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.classic.metadata_budget import MEMBER_METADATA_BYTES_MAX, metadata_bytes
from kwire.coordinator.group.commands import JoinAnswer, JoinGroup
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

# A member sends one protocol per assignor that it supports, so real members send only a few.
PROTOCOLS_MAX = 1_000


def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    version = context.api_version
    try:
        groups = context.groups.coordinator(Operation.READ, request.group_id)
    except KafkaError as error:
        return _response(JoinAnswer(error=error.code), version)
    if len(request.protocols) > PROTOCOLS_MAX:
        return _response(JoinAnswer(error=ErrorCode.INVALID_REQUEST), version)
    named = [(protocol.name, protocol.metadata) for protocol in request.protocols]
    if metadata_bytes(named) > MEMBER_METADATA_BYTES_MAX:
        return _response(JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED), version)
    protocols = groups.metadata.reserve(named)
    if protocols is None:
        return _response(JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE), version)
    command = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        # The format of Java's InetAddress, which Kafka's tools show and expect.
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        requires_member_id=version >= 4,
        can_skip_assignment=version >= 9,
        fresh_id=groups.fresh_id(),
    )
    return answer_of(groups, command, lambda answer: _response(answer, version))


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name if version >= 7 else answer.protocol_name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )

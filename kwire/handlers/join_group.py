"""JoinGroup 0-9: enter the next generation of a classic group; answered when the generation begins.

- 1: a rebalance timeout of its own; in 0 the session timeout is both. 2: throttling.
- 4: a new member is first told its id (MEMBER_ID_REQUIRED) and joins with it. 5: group instance id of static members.
- 7: the answer names the protocol type, and no protocol on an error is null rather than empty.
- More than PROTOCOLS_MAX protocols are INVALID_REQUEST; a member or a group with more metadata than fits is
  GROUP_MAX_SIZE_REACHED (`coordinator/group/metadata_budget.py`).
- 8: a reason, for people. 9: a returning static leader is told to keep the assignment (skip_assignment).
"""

from collections.abc import Awaitable

from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import JoinAnswer, JoinGroup
from kwire.coordinator.group.metadata_budget import MEMBER_METADATA_BYTES_MAX, metadata_bytes
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

# Real members know a few.
PROTOCOLS_MAX = 1_000


def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    version = context.api_version
    groups = context.services.groups
    if len(request.protocols) > PROTOCOLS_MAX:
        return _response(JoinAnswer(error=ErrorCode.INVALID_REQUEST), version)
    named = [(protocol.name, protocol.metadata) for protocol in request.protocols]
    if metadata_bytes(named) > MEMBER_METADATA_BYTES_MAX:
        return _response(JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED), version)
    protocols = groups.metadata.hold(named)
    if protocols is None:
        return _response(JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE), version)
    command = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        # Kafka's tools show and expect an address as Java prints it.
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

"""FindCoordinator 0-6: the coordinator of a group or of a transactional id.

- This node coordinates all groups and transactional ids. The first request for a group creates `__consumer_offsets`,
  the first request for a transactional id creates `__transaction_state`.
- A group needs DESCRIBE on the group, a transactional id DESCRIBE on the id. Without a right on any of the keys, the
  internal topic is not created.
- Share groups are refused, because they are not supported yet. Any other key type is INVALID_REQUEST.
- Version 1 adds the key type and the error message. Version 4 adds several keys per request. Version 5 adds
  TRANSACTION_ABORTABLE. Version 6 adds the key type of share groups, which is INVALID_REQUEST in earlier versions.
- Without an error the message is "NONE" before version 4 and empty from version 4 on, as in Kafka.
"""

from kwire.access.acl import Operation
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_OF_SEVERAL_KEYS = 4
NO_ERROR_MESSAGE = "NONE"  # Kafka's message for error code 0 before version 4
FIRST_VERSION_OF_SHARE_GROUPS = 6
REFUSALS = {
    GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    TRANSACTION: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    has_several_keys = context.api_version >= FIRST_VERSION_OF_SEVERAL_KEYS
    keys = request.coordinator_keys if has_several_keys else [request.key]
    allowed = [_is_allowed(context, request.key_type, key) async for key in spread(keys)]
    # The error of the keys that are allowed.
    error, message = await _error(context, request.key_type) if any(allowed) else (ErrorCode.NONE, "")
    coordinators = [
        _coordinator(context, key, error, message)
        if is_allowed
        else _coordinator(context, key, *REFUSALS[request.key_type])
        async for key, is_allowed in spread(zip(keys, allowed, strict=True))
    ]
    if has_several_keys:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message if only.error_code else NO_ERROR_MESSAGE,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _is_allowed(context: Context, key_type: int, key: str) -> bool:
    if key_type == GROUP:
        return context.groups.permits(Operation.DESCRIBE, key)
    if key_type == TRANSACTION:
        return context.transactions.permits(Operation.DESCRIBE, key)
    return True


def _coordinator(context: Context, key: str, error: ErrorCode, message: str) -> Coordinator:
    if error is ErrorCode.NONE:
        (host, port), node_id = context.endpoint, context.services.node.node_id
    else:
        host, port, node_id = "", -1, -1
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)


async def _error(context: Context, key_type: int) -> tuple[ErrorCode, str]:
    if key_type in (GROUP, TRANSACTION):
        try:
            await (context.groups if key_type == GROUP else context.transactions).ensure_topic()
        except KafkaError as error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or ""
        return ErrorCode.NONE, ""
    if key_type == SHARE and context.api_version >= FIRST_VERSION_OF_SHARE_GROUPS:
        return ErrorCode.UNSUPPORTED_VERSION, "share groups are not supported"
    return ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}: no coordinator has keys of this type"

"""FindCoordinator 0-6: the coordinator of a group or of a transactional id.

- This node coordinates all groups and transactional ids. The first request for a group creates `__consumer_offsets`,
  the first request for a transactional id creates `__transaction_state`.
- Share groups are refused, because they are not supported yet. Any other key type is INVALID_REQUEST.
- Version 1 adds the key type and the error message. Version 4 adds several keys per request. Version 5 adds
  TRANSACTION_ABORTABLE. Version 6 adds the key type of share groups, which is INVALID_REQUEST in earlier versions.
- Without an error the message is "NONE" before version 4 and empty from version 4 on, as in Kafka.
"""

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


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    error, message = await _error(context, request.key_type)
    if error is ErrorCode.NONE:
        (host, port), node_id = context.endpoint, context.services.node.node_id
    else:
        host, port, node_id = "", -1, -1
    if context.api_version < FIRST_VERSION_OF_SEVERAL_KEYS:
        message = message if error is not ErrorCode.NONE else NO_ERROR_MESSAGE
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            async for key in spread(request.coordinator_keys)
        ]
    )


async def _error(context: Context, key_type: int) -> tuple[ErrorCode, str]:
    if key_type in (GROUP, TRANSACTION):
        topics = context.services.topics
        try:
            await (topics.offsets_topic() if key_type == GROUP else topics.transactions_topic())
        except KafkaError as error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or ""
        return ErrorCode.NONE, ""
    if key_type == SHARE and context.api_version >= FIRST_VERSION_OF_SHARE_GROUPS:
        return ErrorCode.UNSUPPORTED_VERSION, "share groups are not supported"
    return ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}: no coordinator has keys of this type"

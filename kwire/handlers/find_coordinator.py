"""FindCoordinator 0-6: which node coordinates a group, or the transactions of a transactional id.

- This node coordinates all of them; the topic that groups, or transactions, are stored in is made when the first is
  looked for.
- Share groups are refused until they are served. Any other kind of key is an invalid request.
- 1: key type and error message; without an error the message is "NONE", as in Kafka. 4: several keys; without an error
  the message is empty. 5: clients understand TRANSACTION_ABORTABLE. 6: share groups; before, their key type is an
  invalid request.
"""

from kwire.broker.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_OF_SEVERAL_KEYS = 4
NO_ERROR_MESSAGE = "NONE"  # Kafka's text for error code 0; it sends none with several keys.
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
        return ErrorCode.UNSUPPORTED_VERSION, "share groups are not served yet"
    return ErrorCode.INVALID_REQUEST, f"there is no coordinator for keys of type {key_type}"

"""UnregisterBroker 0: one broker is registered, this one, and it stays.

Kafka lets go of any broker, also of one that runs: its partitions stay without a leader. Here that would be every
partition there is, and nobody would be left to answer, so this node itself is refused as INVALID_REQUEST. Every other
id is BROKER_ID_NOT_REGISTERED.
"""

from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if request.broker_id == context.services.node.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {request.broker_id} is the only one and cannot be unregistered.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker {request.broker_id} is not registered.",
    )

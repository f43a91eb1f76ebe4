"""UnregisterBroker 0: refused, because this node is the only registered broker.

Kafka unregisters any broker, even a running one, and the partitions led by that broker lose their leader. In kwire
every partition would lose its leader, so this node's id is INVALID_REQUEST. Every other id is BROKER_ID_NOT_REGISTERED.
The request needs ALTER on the cluster.
"""

from kwire.access.acl import Operation
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if not context.cluster.permits(Operation.ALTER):
        return UnregisterBrokerResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    if request.broker_id == context.services.node.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {request.broker_id} is the only one and cannot be unregistered.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker {request.broker_id} is not registered.",
    )

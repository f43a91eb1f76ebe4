"""DescribeClientQuotas 0-1: no quotas, because the server has none and AlterClientQuotas is not served.

Kafka's tool for users (`kafka-configs --describe --entity-type users`) needs the response before it requests the SCRAM
credentials. A filter that Kafka refuses is refused. The client needs DESCRIBE_CONFIGS on the cluster. Version 1 is
flexible.
"""

from kwire.access.acl import Operation
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not context.cluster.permits(Operation.DESCRIBE_CONFIGS):
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    types: set[str] = set()
    for component in request.components:
        if component.entity_type in types:
            message = f"Entity type {component.entity_type} cannot appear more than once in the filter."
            return _refusal(ErrorCode.INVALID_REQUEST, message)
        if component.entity_type not in (USER, CLIENT_ID, IP, ""):
            return _refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
        problem = _problem(component)
        if problem:
            return _refusal(ErrorCode.INVALID_REQUEST, problem)
        types.add(component.entity_type)
    if IP in types and len(types) > 1:
        return _refusal(ErrorCode.INVALID_REQUEST, "A filter for an IP address cannot also be for a user or client id.")
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=[])


def _problem(component: ComponentData) -> str:
    if not component.entity_type:
        return "Invalid empty entity type."
    if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        return f"Unknown match type {component.match_type}"
    if (component.match is None) == (component.match_type == EXACT):
        return "A filter of match type 0 needs a match string, and the other match types must not have one."
    return ""


def _refusal(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message[:1000], entries=None)

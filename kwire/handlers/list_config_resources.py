"""ListConfigResources 0-1: the names of resources that have settings.

Groups and client metrics subscriptions are listed if they have settings. This broker, its loggers and all topics are
always listed. An unknown resource type is UNSUPPORTED_VERSION. The request needs DESCRIBE_CONFIGS on the cluster.

- Version 0, which Kafka named ListClientMetricsResources, lists only client metrics subscriptions.
- Version 1 lists the requested resource types. An empty list of types requests all of them (KIP-1142).
"""

from collections.abc import Awaitable, Iterable, Iterator
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.config.description import ResourceType
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

# The resource types in the order of the response.
_TYPES = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse]:
    if not context.cluster.permits(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    served = _TYPES if context.api_version > 0 else (ResourceType.CLIENT_METRICS,)
    wanted = frozenset(request.resource_types or served)
    if not wanted.issubset(served):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return answer_in_chunks(
        _resources(context, [kind for kind in served if kind in wanted]),
        lambda resource: 1,
        _response,
        context.elements_encoder(ListConfigResourcesResponse, "config_resources"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )


def _response(resources: Any) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=0, config_resources=resources)


def _resources(context: Context, kinds: Iterable[ResourceType]) -> Iterator[ConfigResource]:
    for kind in kinds:
        for name in _names(context, kind):
            yield ConfigResource(resource_name=name, resource_type=kind)


def _names(context: Context, kind: ResourceType) -> Iterable[str]:
    services = context.services
    if kind is ResourceType.TOPIC:
        return context.cluster.topics(Operation.DESCRIBE_CONFIGS).catalogue.names()
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(services.node.node_id)]
    return services.configs.names(kind)

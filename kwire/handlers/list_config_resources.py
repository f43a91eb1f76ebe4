"""ListConfigResources 0-1: the names of resources that have settings.

Groups and subscriptions to client metrics are named if somebody configured them; this broker, its loggers and topics
always. A type that is not known is answered with UNSUPPORTED_VERSION.

- 0: subscriptions to client metrics and nothing else (the API was called ListClientMetricsResources).
- 1: any types of resources; none named means all of them (KIP-1142).
"""

from collections.abc import Awaitable, Iterable, Iterator
from typing import Any

from kwire.broker.turns import answer_in_turns
from kwire.config.description import ResourceType
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

# In the order in which they are told.
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
    served = _TYPES if context.api_version > 0 else (ResourceType.CLIENT_METRICS,)
    wanted = frozenset(request.resource_types or served)
    if not wanted.issubset(served):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return answer_in_turns(
        _resources(context, [kind for kind in served if kind in wanted]),
        lambda resource: 1,
        _response,
        lambda some: elements_encoder(ListConfigResourcesResponse, "config_resources", context.api_version)(some),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
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
        return services.topics.catalogue.names()
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(services.node.node_id)]
    return services.configs.names(kind)

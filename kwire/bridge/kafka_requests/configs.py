"""Settings on a bridge: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Settings of topics and groups are described and changed. Those of brokers are described only: a change would affect
everybody who uses the cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from kwire.access.acl import Operation
from kwire.access.audit.entries import GROUP, TOPIC
from kwire.bridge.kafka_requests.context import RequestContext, check_is_not_internal
from kwire.bridge.kafka_requests.upstream import code_of, with_fields
from kwire.concurrency.chunking import spread
from kwire.config.description import ResourceType
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote_events.topic_rules import FIXED_CONFIGS, check_configs
from kwire.wire.messages import alter_configs as whole
from kwire.wire.messages import incremental_alter_configs as single
from kwire.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kwire.wire.messages.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kwire.wire.schema import Api

R = TypeVar("R")

# Resources whose settings the broker of that name describes. All others may be described by any broker.
_OF_ONE_BROKER: Final = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
_OF_CLUSTER: Final = (*_OF_ONE_BROKER, ResourceType.CLIENT_METRICS)
_ANY_BROKER: Final = -1
# The operation of IncrementalAlterConfigs that sets a value.
_SET: Final = 0


def _authorize(context: RequestContext, operation: Operation, kind: int, name: str) -> None:
    """Raise KafkaError if the client may not do the operation on a resource. Unknown types are refused."""
    if kind == ResourceType.TOPIC:
        context.topics.authorize(operation, name)
    elif kind == ResourceType.GROUP:
        context.groups.authorize(operation, name)
    elif kind in _OF_CLUSTER:
        context.cluster.authorize(operation)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


async def describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results: list[DescribeConfigsResult] = []
    parts: dict[int, list[DescribeConfigsResource]] = {}
    async for one in spread(request.resources):
        try:
            _authorize(context, Operation.DESCRIBE_CONFIGS, one.resource_type, one.resource_name)
            parts.setdefault(_place(one), []).append(one)
        except KafkaError as error:
            results.append(_described_failure(one, error))

    async def ask(node: int, part: list[DescribeConfigsResource]) -> Any:
        message, version = with_fields(request, resources=part), context.api_version
        if node == _ANY_BROKER:
            return await context.upstream.ask_any(DESCRIBE_CONFIGS, version, message)
        return await context.upstream.ask_broker(node, DESCRIBE_CONFIGS, version, message)

    for part, outcome in await context.upstream.ask_each(parts, ask):
        if isinstance(outcome, KafkaError):
            results += [_described_failure(one, outcome) for one in part]
        else:
            results += outcome.results
    return DescribeConfigsResponse(results=results)


def _place(one: DescribeConfigsResource) -> int:
    if one.resource_type not in _OF_ONE_BROKER or not one.resource_name:
        return _ANY_BROKER
    if not (one.resource_name.isascii() and one.resource_name.isdecimal()) or len(one.resource_name) > 9:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {one.resource_name}")
    return int(one.resource_name)


def _described_failure(one: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code_of(error),
        error_message=error.message,
        resource_type=one.resource_type,
        resource_name=one.resource_name,
        configs=[],
    )


async def alter_configs(context: RequestContext, request: whole.AlterConfigsRequest) -> whole.AlterConfigsResponse:
    answer = whole.AlterConfigsResponse(responses=[])
    return await _alter(context, whole.ALTER_CONFIGS, request, answer, whole.AlterConfigsResourceResponse)


async def incremental_alter_configs(
    context: RequestContext, request: single.IncrementalAlterConfigsRequest
) -> single.IncrementalAlterConfigsResponse:
    answer = single.IncrementalAlterConfigsResponse(responses=[])
    return await _alter(context, single.INCREMENTAL_ALTER_CONFIGS, request, answer, single.AlterConfigsResourceResponse)


async def _alter(context: RequestContext, api: Api, request: Any, answer: R, result: type[Any]) -> R:
    """Send the resources that the client may change. `answer` is returned if there are none."""
    allowed: list[Any] = []
    refused: list[Any] = []
    async for one in spread(request.resources):
        try:
            _authorize(context, Operation.ALTER_CONFIGS, one.resource_type, one.resource_name)
            _check_change(context, one)
            allowed.append(one)
        except KafkaError as error:
            refused.append(
                result(
                    error_code=code_of(error),
                    error_message=error.message,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                )
            )
    response: Any = answer
    if allowed:
        request.resources = allowed
        response = await context.upstream.ask_controller(api, context.api_version, request)
        if not request.validate_only:
            _record(context, allowed, response.responses)
    response.responses += refused
    changed: R = response
    return changed


def _check_change(context: RequestContext, one: Any) -> None:
    if one.resource_type in _OF_CLUSTER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A bridge changes settings of topics and groups, not those of the cluster."
        )
    if one.resource_type == ResourceType.TOPIC:
        check_is_not_internal(one.resource_name)
        if context.services.is_event_topic(one.resource_name):
            changes = {config.name: _new_value(config) for config in one.configs}
            if isinstance(one, whole.AlterConfigsResource):
                _check_fixed_are_named(one.resource_name, changes)
            check_configs(changes)


def _check_fixed_are_named(topic: str, changes: Mapping[str, str | None]) -> None:
    """AlterConfigs removes the settings that it does not name. Raise KafkaError if one of them is fixed."""
    removed = [f"{name}={value}" for name, value in FIXED_CONFIGS.items() if name not in changes]
    if removed:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"AlterConfigs removes settings that it does not name; topic '{topic}' of the event store needs "
            f"{' and '.join(removed)}: name them, too, or send IncrementalAlterConfigs.",
        )


def _new_value(config: Any) -> str | None:
    """Return the value that a setting is set to. None if it is removed, or if a list is changed."""
    is_set = getattr(config, "config_operation", _SET) == _SET
    value: str | None = config.value if is_set else None
    return value


def _record(context: RequestContext, asked: Iterable[Any], responses: Iterable[Any]) -> None:
    settings = {
        (one.resource_type, one.resource_name): sorted({config.name for config in one.configs}) for one in asked
    }
    for one in responses:
        if one.error_code == ErrorCode.NONE:
            is_topic = one.resource_type == ResourceType.TOPIC
            what, kind = ("topic.configured", TOPIC) if is_topic else ("config.changed", GROUP)
            facts = {"settings": settings.get((one.resource_type, one.resource_name), [])}
            context.audit.changed(what, kind, one.resource_name, facts)


async def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not context.cluster.permits(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    response: ListConfigResourcesResponse = await context.upstream.ask_any(
        LIST_CONFIG_RESOURCES, context.api_version, request
    )
    return response

"""DescribeConfigs 1-4: every setting of a resource, with its source, type, synonyms and documentation.

Resources are topics, this broker, its loggers, groups and client metrics subscriptions. The broker is named by its node
id; the empty name stands for the dynamic defaults of all brokers. Groups and subscriptions are described even if they
do not exist. Topics and groups need DESCRIBE_CONFIGS on themselves, and all other resources need it on the cluster.
Values have the format that AlterConfigs accepts, so a client can send them back unchanged. A repeated resource has one
result, for its first occurrence.

- Version 1 adds the source of each value and, on request, its synonyms: all sources of the value in order of
  precedence.
- Version 2 changes nothing in kwire. In Kafka, from version 2 on, a throttled client gets its response at once; only
  the client's next request is delayed.
- Version 3 adds the type of each setting and, on request, its documentation.
- Version 4 is flexible.
"""

from collections.abc import Awaitable, Hashable, Iterable, Iterator
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.admin import log_levels
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.broker.topics.names import check_name
from kwire.config import Config, ConfigSource
from kwire.config.description import ConfigEntry, ResourceType, describe_all_brokers, describe_broker
from kwire.config.resources import client_metrics as client_metrics_config
from kwire.config.resources import group as group_config
from kwire.config.resources import topic as topic_config
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# Many topics have equal configurations. Up to this many descriptions are cached while a response is built.
CACHED_CONFIGS_MAX = 100
# The weight of a setting in `answer_in_chunks`. A topic or a partition has weight 1; a setting takes longer.
WEIGHT_PER_SETTING = 4
# The resources whose settings need a right on the cluster.
_CLUSTER_RESOURCES = (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)


def handle(
    context: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    return answer_in_chunks(
        _results(context, request),
        lambda result: 1 + WEIGHT_PER_SETTING * len(result.configs),
        _response,
        context.elements_encoder(DescribeConfigsResponse, "results"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )


def _response(results: Any) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=results)


def _results(context: Context, request: DescribeConfigsRequest) -> Iterator[DescribeConfigsResult]:
    # Use one configuration for the whole response, because the node's configuration may change between two chunks.
    config = context.services.config
    cache: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
    seen: set[tuple[int, str]] = set()
    for asked in request.resources:
        if (asked.resource_type, asked.resource_name) in seen:
            # Describe each resource once: a few bytes of a request cause tens of kilobytes of the response.
            continue
        seen.add((asked.resource_type, asked.resource_name))
        result = DescribeConfigsResult(
            error_code=0, resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[]
        )
        try:
            wanted = frozenset(asked.configuration_keys or ())
            if asked.resource_type == ResourceType.TOPIC:
                result.configs = _topic(context, config, request, asked.resource_name, wanted, cache)
            else:
                result.configs = _described(_entries(context, config, asked), request, wanted)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        yield result


def _topic(
    context: Context,
    config: Config,
    request: DescribeConfigsRequest,
    name: str,
    wanted: frozenset[str],
    cache: dict[Hashable, list[DescribeConfigsResourceResult]],
) -> list[DescribeConfigsResourceResult]:
    """Describe the settings of a topic. Use `cache` if a topic with an equal configuration was described before."""
    context.topics.authorize(Operation.DESCRIBE_CONFIGS, name)
    check_name(name)
    facts = context.topics.find(Operation.DESCRIBE_CONFIGS, name)
    if facts is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    key = frozenset(facts.configs.items()), wanted
    described = cache.get(key)
    if described is None:
        if len(cache) >= CACHED_CONFIGS_MAX:
            cache.clear()
        described = cache[key] = _described(topic_config.describe(facts.configs, config), request, wanted)
    return described


def _entries(context: Context, config: Config, asked: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    configs, name = context.services.configs, asked.resource_name
    if asked.resource_type == ResourceType.GROUP:
        context.groups.authorize(Operation.DESCRIBE_CONFIGS, name)
    elif asked.resource_type in _CLUSTER_RESOURCES:
        context.cluster.authorize(Operation.DESCRIBE_CONFIGS)
    match asked.resource_type:
        case ResourceType.BROKER:
            if not name:
                return describe_all_brokers(config)
            _check_broker(context, name, "Unexpected broker id, expected {} or empty string,")
            return describe_broker(config)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_broker(context, name, "Unexpected broker id, expected {}")
            return _loggers()
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return client_metrics_config.describe(configs.overrides(ResourceType.CLIENT_METRICS, name))
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return group_config.describe(configs.overrides(ResourceType.GROUP, name), config)
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {asked.resource_type}")


def _check_broker(context: Context, name: str, refusal: str) -> None:
    here = context.services.node.node_id
    try:
        number = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if number != here:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{refusal.format(here)} but received {name}")


def _loggers() -> Iterator[ConfigEntry]:
    for name, level in log_levels.levels().items():
        yield ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            kind=None,
            is_sensitive=False,
            is_read_only=False,
            documentation="",
            synonyms=(),
        )


def _described(
    entries: Iterable[ConfigEntry], request: DescribeConfigsRequest, wanted: frozenset[str]
) -> list[DescribeConfigsResourceResult]:
    return [_entry(entry, request) for entry in entries if not wanted or entry.name in wanted]


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=entry.kind or 0,
        documentation=entry.documentation if request.include_documentation else None,
    )

"""DescribeConfigs 1-4: every setting of a resource, with its source, type, synonyms and documentation.

Resources: topics; this broker (by its node id, or the empty name for what was changed for all brokers) and its loggers;
groups and subscriptions to client metrics, whether they exist or not. What is told can be written back. A resource that
is named twice is answered once, for what was asked of it first.

- 1: the source of each value, and on request its synonyms: all places it may come from, strongest first.
- 2: nothing here; who is throttled is answered before it waits.
- 3: the type of each setting, and on request its documentation.
- 4: flexible.
"""

from collections.abc import Awaitable, Hashable, Iterable, Iterator
from typing import Any

from kwire import client_metrics_config, group_config, topic_config
from kwire.broker import log_levels
from kwire.broker.topic_names import check_name
from kwire.broker.turns import answer_in_turns
from kwire.config import Config, ConfigSource
from kwire.config.description import ConfigEntry, ResourceType, describe_all_brokers, describe_broker
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# Most topics are configured like many others; so many different ones are remembered while an answer is made.
ALIKE_MAX = 100
# A setting takes several times as long to tell as a topic or a partition does.
WEIGHT_PER_SETTING = 4


def handle(
    context: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    return answer_in_turns(
        _results(context, request),
        lambda result: 1 + WEIGHT_PER_SETTING * len(result.configs),
        _response,
        lambda some: elements_encoder(DescribeConfigsResponse, "results", context.api_version)(some),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
    )


def _response(results: Any) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=results)


def _results(context: Context, request: DescribeConfigsRequest) -> Iterator[DescribeConfigsResult]:
    # One for the whole answer, though it may change between two turns.
    config = context.services.config
    alike: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
    told: set[tuple[int, str]] = set()
    for asked in request.resources:
        if (asked.resource_type, asked.resource_name) in told:
            # A few bytes of a request would be tens of kilobytes of the answer, as often as they are sent.
            continue
        told.add((asked.resource_type, asked.resource_name))
        result = DescribeConfigsResult(
            error_code=0, resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[]
        )
        try:
            wanted = frozenset(asked.configuration_keys or ())
            if asked.resource_type == ResourceType.TOPIC:
                result.configs = _topic(context, config, request, asked.resource_name, wanted, alike)
            else:
                result.configs = _told(_entries(context, config, asked), request, wanted)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        yield result


def _topic(
    context: Context,
    config: Config,
    request: DescribeConfigsRequest,
    name: str,
    wanted: frozenset[str],
    alike: dict[Hashable, list[DescribeConfigsResourceResult]],
) -> list[DescribeConfigsResourceResult]:
    """What is told of a topic, or was told of one that is configured the same."""
    check_name(name)
    facts = context.services.topics.catalogue.find(name)
    if facts is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    key = frozenset(facts.configs.items()), wanted
    told = alike.get(key)
    if told is None:
        if len(alike) >= ALIKE_MAX:
            alike.clear()
        told = alike[key] = _told(topic_config.describe(facts.configs, config), request, wanted)
    return told


def _entries(context: Context, config: Config, asked: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    configs, name = context.services.configs, asked.resource_name
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


def _told(
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

"""DescribeConfigs 1-4: every setting of a topic or of this node, with its source, type, synonyms and documentation."""

from collections.abc import Iterable

from kwire import topic_config
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.topic_config import ConfigEntry
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC, BROKER = 2, 4


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for asked in request.resources:
        result = DescribeConfigsResult(
            error_code=0, resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[]
        )
        try:
            wanted = asked.configuration_keys
            result.configs = [
                _entry(entry, request)
                for entry in _entries(context, asked)
                if wanted is None or not wanted or entry.name in wanted
            ]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(context: Context, asked: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    config = context.services.config
    if asked.resource_type == TOPIC:
        topic = context.services.topics.get(asked.resource_name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.resource_name}'.")
        return topic_config.describe(topic.configs, config)
    if asked.resource_type == BROKER:
        if asked.resource_name == "":
            return []  # cluster-wide dynamic defaults: there are none
        if asked.resource_name != str(config.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"This is node {config.node_id}, it knows nothing of {asked.resource_name}."
            )
        return topic_config.describe_broker(config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {asked.resource_type} has no settings here.")


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
    )

"""IncrementalAlterConfigs 0-1: change single settings of topics, durable before the answer.

Operations: set, delete (back to the default), append to and subtract from a list. The node's own settings are read
at start and cannot be changed this way.
"""

from collections import Counter

from kwire import topic_config
from kwire.broker.topics import Topic
from kwire.config import InvalidConfig, Kind
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.describe_configs import TOPIC
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    times = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        answer = AlterConfigsResourceResponse(
            error_code=0, resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            if times[asked.resource_type, asked.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource is in the request more than once.")
            topic, configs = _changed(context, asked)
            if not request.validate_only:
                await context.services.topics.configure(topic, configs)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        responses.append(answer)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changed(context: Context, asked: AlterConfigsResource) -> tuple[Topic, dict[str, str]]:
    if asked.resource_type != TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only the settings of topics can be changed while the server runs.")
    topic = context.services.topics.get(asked.resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.resource_name}'.")
    names = [one.name for one in asked.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A setting is in the request more than once.")
    configs = dict(topic.configs)
    try:
        for one in asked.configs:
            _apply(context, configs, one)
        topic_config.validate(configs)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return topic, configs


def _apply(context: Context, configs: dict[str, str], change: AlterableConfig) -> None:
    if change.config_operation == DELETE:
        configs.pop(change.name, None)
        return
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A value is needed for {change.name}.")
    if change.config_operation == SET:
        configs[change.name] = change.value
        return
    if change.config_operation not in (APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no operation {change.config_operation}.")
    setting = topic_config.TOPIC_SETTINGS.get(change.name)
    if setting is None or setting.kind is not Kind.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list.")
    items = _items(topic_config.effective(change.name, configs, context.services.config).value or "")
    given = _items(change.value)
    if change.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    configs[change.name] = ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]

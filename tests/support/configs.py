"""Asking a quiet node about settings and changing them, as clients do."""

from typing import Any

from kwire.config.description import ResourceType
from kwire.wire.messages.alter_configs import AlterableConfig as WholeConfig
from kwire.wire.messages.alter_configs import AlterConfigsRequest
from kwire.wire.messages.alter_configs import AlterConfigsResource as WholeResource
from kwire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.node import NODE_ID, QuietNode

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
HERE = str(NODE_ID)
SET, DELETE, APPEND, SUBTRACT = range(4)

# A resource and what is done to it: (operation, setting, value) each.
Operation = tuple[int, str, str | None]
Answer = tuple[int, str | None]


async def described(
    node: QuietNode, kind: int, name: str, *keys: str, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    """Everything told about a resource, with synonyms and documentation, by name of the setting."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    (one,) = (await node.ask(request, version)).results
    assert one.error_code == 0, one.error_message
    return {config.name: config for config in one.configs}


async def refused(node: QuietNode, kind: int, name: str) -> Answer:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (one,) = (await node.ask(DescribeConfigsRequest(resources=[asked]), 4)).results
    assert not one.configs
    return one.error_code, one.error_message


async def edit(
    node: QuietNode, kind: int, name: str, *operations: Operation, version: int = 1, validate_only: bool = False
) -> Answer:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(config_operation=operation, name=setting, value=value)
            for operation, setting, value in operations
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return _only(await node.ask(request, version))


async def replace(
    node: QuietNode,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> Answer:
    pairs = [WholeConfig(name=setting, value=value) for setting, value in configs.items()]
    resource = WholeResource(resource_type=kind, resource_name=name, configs=pairs)
    return _only(await node.ask(AlterConfigsRequest(resources=[resource], validate_only=validate_only), version))


def _only(response: Any) -> Answer:
    (one,) = response.responses
    assert bool(one.error_code) == bool(one.error_message)
    return one.error_code, one.error_message

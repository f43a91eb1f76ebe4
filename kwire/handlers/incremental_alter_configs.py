"""IncrementalAlterConfigs 0-1: change single settings of resources, durable before the answer.

Operations: set, delete (back to the default), append to and subtract from a list. Topics, brokers, groups and
subscriptions to client metrics keep what is set; the levels of loggers last until the process ends. Each resource is
judged on its own, and all of its changes are made or none.

- 1: flexible.
"""

from kwire.broker.chunking import spread
from kwire.broker.config_changes import EDITS_MAX, ConfigChanges, Edit, ResourceChange
from kwire.handlers.context import Context
from kwire.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    changes = [
        ResourceChange(
            asked.resource_type,
            asked.resource_name,
            [Edit(one.config_operation, one.name, one.value) for one in asked.configs[: EDITS_MAX + 1]],
        )
        async for asked in spread(request.resources)
    ]
    services = context.services
    errors = await ConfigChanges(services.topics, services.configs).make(changes, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code if error is not None else 0,
                error_message=error.message if error is not None else None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            async for asked, error in spread(zip(request.resources, errors, strict=True))
        ]
    )

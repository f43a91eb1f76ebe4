"""IncrementalAlterConfigs 0-1: change single settings of resources, durable before the answer.

Operations: set, delete (back to the default), append to and subtract from a list. Topics, brokers, groups and
subscriptions to client metrics keep what is set; the levels of loggers last until the process ends. Each resource is
judged on its own, and all of its changes are made or none.

- 1: flexible.
"""

from kwire.broker.chunking import spread
from kwire.broker.config_changes import EDITS_MAX, Edit, ResourceChange
from kwire.handlers.config_alterations import altered
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
    responses = await altered(context, changes, request.validate_only, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)

"""IncrementalAlterConfigs 0-1: change single settings of resources; the response is sent when they are durable.

Operations are set, delete (reset to the default), append to a list and subtract from a list. The settings of topics,
brokers, groups and client metrics subscriptions are stored. The levels of loggers are lost when the process ends. Each
resource has its own result, and either all of its changes are applied or none.

- Version 1 is flexible.
"""

from kwire.broker.admin.config_changes import EDITS_MAX, Edit, ResourceChange
from kwire.concurrency.chunking import spread
from kwire.handlers.shared.config_alterations import alter_resources
from kwire.handlers.shared.context import Context
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
    responses = await alter_resources(context, changes, request.validate_only, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)

"""AlterConfigs 0-2: replace all settings of resources; the response is sent when the changes are durable.

Settings that the request does not name are reset to their defaults. IncrementalAlterConfigs does not reset them.
Resources are topics, brokers, groups and client metrics subscriptions, but not loggers. Each resource has its own
result.

- Version 1 changes nothing in kwire. In Kafka, from version 1 on, a throttled client gets its response at once; only
  the client's next request is delayed.
- Version 2 is flexible.
"""

from kwire.broker.admin.config_changes import EDITS_MAX, Edit, Operation, ResourceChange
from kwire.concurrency.chunking import spread
from kwire.handlers.shared.config_alterations import alter_resources
from kwire.handlers.shared.context import Context
from kwire.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = [
        ResourceChange(
            asked.resource_type,
            asked.resource_name,
            [Edit(Operation.SET, one.name, one.value) for one in asked.configs[: EDITS_MAX + 1]],
            is_whole=True,
        )
        async for asked in spread(request.resources)
    ]
    responses = await alter_resources(context, changes, request.validate_only, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=responses)

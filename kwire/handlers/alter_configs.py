"""AlterConfigs 0-2: replace all settings of resources, durable before the answer.

What a request does not name goes back to its default; IncrementalAlterConfigs came to spare clients that. Topics,
brokers, groups and subscriptions to client metrics; each resource is judged on its own. Loggers are not for this API.

- 1: nothing here; who is throttled is answered before it waits.
- 2: flexible.
"""

from kwire.broker.chunking import spread
from kwire.broker.config_changes import EDITS_MAX, Edit, Operation, ResourceChange
from kwire.handlers.config_alterations import altered
from kwire.handlers.context import Context
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
    responses = await altered(context, changes, request.validate_only, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=responses)

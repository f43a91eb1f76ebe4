"""The common part of AlterConfigs and IncrementalAlterConfigs: apply the changes and build a result per resource.

Topics and groups need ALTER_CONFIGS on themselves. All other resources need it on the cluster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kwire.access.acl import Operation
from kwire.broker.admin.config_changes import ConfigChanges, ResourceChange
from kwire.concurrency.chunking import spread
from kwire.config.description import ResourceType
from kwire.handlers.shared.context import Context

Answer = TypeVar("Answer")


async def alter_resources(
    context: Context, changes: Sequence[ResourceChange], validate_only: bool, answer: Callable[..., Answer]
) -> list[Answer]:
    """Apply the changes, or only validate them. `answer` is the class of the result of one resource."""
    services = context.services
    authorize = partial(_authorize, context)
    errors = await ConfigChanges(services.topics, services.configs).apply(changes, validate_only, authorize)
    return [
        answer(
            error_code=error.code if error is not None else 0,
            error_message=error.message if error is not None else None,
            resource_type=change.kind,
            resource_name=change.name,
        )
        async for change, error in spread(zip(changes, errors, strict=True))
    ]


def _authorize(context: Context, change: ResourceChange) -> None:
    match change.kind:
        case ResourceType.TOPIC:
            context.topics.authorize(Operation.ALTER_CONFIGS, change.name)
        case ResourceType.GROUP:
            context.groups.authorize(Operation.ALTER_CONFIGS, change.name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            context.cluster.authorize(Operation.ALTER_CONFIGS)
        case _:
            pass  # there is no such resource, so the change is refused anyway

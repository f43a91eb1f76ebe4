"""The common part of AlterConfigs and IncrementalAlterConfigs: apply the changes and build a result per resource."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kwire.broker.admin.config_changes import ConfigChanges, ResourceChange
from kwire.concurrency.chunking import spread
from kwire.handlers.shared.context import Context

Answer = TypeVar("Answer")


async def alter_resources(
    context: Context, changes: Sequence[ResourceChange], validate_only: bool, answer: Callable[..., Answer]
) -> list[Answer]:
    """Apply the changes, or only validate them. `answer` is the class of the result of one resource."""
    services = context.services
    errors = await ConfigChanges(services.topics, services.configs).apply(changes, validate_only)
    return [
        answer(
            error_code=error.code if error is not None else 0,
            error_message=error.message if error is not None else None,
            resource_type=change.kind,
            resource_name=change.name,
        )
        async for change, error in spread(zip(changes, errors, strict=True))
    ]

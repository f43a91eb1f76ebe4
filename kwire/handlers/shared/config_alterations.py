"""What AlterConfigs and IncrementalAlterConfigs have in common: changes are made, and each resource gets its answer."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kwire.broker.chunking import spread
from kwire.broker.config_changes import ConfigChanges, ResourceChange
from kwire.handlers.context import Context

Answer = TypeVar("Answer")


async def altered(
    context: Context, changes: Sequence[ResourceChange], validate_only: bool, answer: Callable[..., Answer]
) -> list[Answer]:
    """Make the changes, or only judge them; `answer` is how the API's response names a resource."""
    services = context.services
    errors = await ConfigChanges(services.topics, services.configs).make(changes, validate_only)
    return [
        answer(
            error_code=error.code if error is not None else 0,
            error_message=error.message if error is not None else None,
            resource_type=change.kind,
            resource_name=change.name,
        )
        async for change, error in spread(zip(changes, errors, strict=True))
    ]

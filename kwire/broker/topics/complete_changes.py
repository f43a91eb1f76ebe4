"""Changes of topics that are completed even if their caller is cancelled."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from kwire.errors import KafkaError

log = logging.getLogger("kwire.broker")

R = TypeVar("R")
T = TypeVar("T")


async def run_to_end(change: Coroutine[Any, Any, R]) -> R:
    """Await a change. The change continues if the caller is cancelled."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The caller does not receive an error of the change, so the error is logged.
        task.add_done_callback(_note_failure)
        raise


async def run_in_portions(
    items: Sequence[T], count_max: int, change: Callable[[Sequence[T]], Coroutine[Any, Any, list[R]]]
) -> list[R]:
    """Call `change` with up to `count_max` items at a time, to the end as `run_to_end`. Returns all results.

    If a call fails, the earlier ones have taken effect.
    """

    async def run() -> list[R]:
        results: list[R] = []
        for start in range(0, len(items), count_max):
            results += await change(items[start : start + count_max])
        return results

    return await run_to_end(run())


def _note_failure(change: "asyncio.Future[Any]") -> None:
    error = None if change.cancelled() else change.exception()
    if error is not None and not isinstance(error, KafkaError):  # a KafkaError is an error in the client's request
        log.error("a change of topics failed", exc_info=error)

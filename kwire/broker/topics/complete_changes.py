"""`run_to_end`: completes a change of topics even if its caller is cancelled."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from kwire.errors import KafkaError

log = logging.getLogger("kwire.broker")

R = TypeVar("R")


async def run_to_end(change: Coroutine[Any, Any, R]) -> R:
    """Await a change. The change continues if the caller is cancelled."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The caller does not receive an error of the change, so the error is logged.
        task.add_done_callback(_note_failure)
        raise


def _note_failure(change: "asyncio.Future[Any]") -> None:
    error = None if change.cancelled() else change.exception()
    if error is not None and not isinstance(error, KafkaError):  # a KafkaError is an error in the client's request
        log.error("a change of topics failed", exc_info=error)

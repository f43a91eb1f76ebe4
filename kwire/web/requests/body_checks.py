"""Runs the checks of large bodies in a worker process, because scanning ten megabytes would block the event loop for
ten milliseconds.

A body that passes the checks is decoded in the event loop's thread. The checks (`body_limits`) limit how long the
decoding takes.
"""

import asyncio
from collections.abc import Callable

import msgspec

from kwire.concurrency.worker_process import WorkerDied, WorkerProcess

# Larger bodies are checked in the worker process. Checking a body of this size takes about one millisecond.
CHECKED_HERE_BYTES_MAX = 1024 * 1024
# The maximum number of bodies in the worker process: one is being checked, one waits.
WORKER_CALLS_MAX = 2

# The worker process ends after this idle time, to release its memory: large bodies are rare.
IDLE_SECONDS = 10.0

Check = Callable[[bytes], None]


class BodyChecks:
    """Runs checks in this process or in the worker process. `worker_count` is the number of bodies that were sent to
    the worker process."""

    def __init__(self) -> None:
        self._process = WorkerProcess(IDLE_SECONDS)
        self._calls = asyncio.Semaphore(WORKER_CALLS_MAX)
        self.worker_count = 0

    async def run(self, raw: bytes, *checks: Check) -> None:
        """Run the checks, which must be module-level functions. Raises the exception of the first check that fails."""
        if len(raw) > CHECKED_HERE_BYTES_MAX:
            async with self._calls:
                self.worker_count += 1
                try:
                    await self._process.run(run_all, raw, checks)
                except WorkerDied:
                    pass  # The body may be valid, so check it in this process.
                else:
                    return
        run_all(raw, checks)

    async def close(self) -> None:
        await self._process.close()


def run_all(raw: bytes, checks: tuple[Check, ...]) -> None:
    """Run the checks. The worker process calls this function."""
    try:
        for check in checks:
            check(raw)
    except UnicodeDecodeError as error:
        # Replace the UnicodeDecodeError: it contains the whole body, and the worker process would send that back.
        raise msgspec.DecodeError(str(error)) from None

"""A worker process for slow schema work: validating new schemas and checking very large payloads.

If a call uses more than `SECONDS_MAX` of processor time, the process is ended and the request is refused. So one call
cannot delay the others for long. If the process ends for another reason, the error is retriable.
"""

import signal
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kwire.concurrency.worker_process import WorkerDied, WorkerProcess
from kwire.errors import ErrorCode, KafkaError

R = TypeVar("R")

SECONDS_MAX = 10.0
# Topics whose compiled schemas the process caches. When the cache is full, it is cleared.
COMPILED_MAX = 20


class WorkerTimeout(Exception):
    """The worker process exceeded its time limit."""


class Run(Protocol):
    """Runs a module-level function in another process.

    Raises WorkerTimeout if the call exceeds its time limit, and KafkaError if the process ends for another reason.
    """

    def __call__(self, function: Any, *args: Any) -> Awaitable[Any]: ...


class SchemaWorker:
    """The worker process, with a limit on the processor time of each call."""

    def __init__(self, seconds_max: float = SECONDS_MAX) -> None:
        self._worker = WorkerProcess()
        self._seconds_max = seconds_max
        self._is_closed = False

    async def run(self, function: Any, *args: Any) -> Any:
        try:
            return await self._worker.run(_limited, self._seconds_max, function, args)
        except WorkerDied as error:
            if self._is_closed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping") from error
            if error.code != -signal.SIGPROF:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the check was interrupted, try again") from error
            raise WorkerTimeout(f"the check exceeded {self._seconds_max:g} seconds") from error

    async def close(self) -> None:
        self._is_closed = True
        await self._worker.close()


# --- in the worker process


def _limited(seconds_max: float, function: Any, args: tuple[Any, ...]) -> Any:
    # The worker process has no handler for SIGPROF, so the signal ends the process, even inside compiled code. The
    # timer measures processor time. If it measured elapsed time, valid events would be refused on a busy machine.
    signal.setitimer(signal.ITIMER_PROF, seconds_max)
    try:
        return function(*args)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


_compiled: dict[tuple[str, int], Any] = {}


class Violation(NamedTuple):
    """The fields of a SchemaViolation, which can be pickled."""

    path: str
    problem: str


def violations(
    key: tuple[str, int], stored: Mapping[str, Any], events: Sequence[tuple[str, bytes]]
) -> list[Violation | None]:
    """Check events against stored schemas. Returns the violation of each event, or None if the event is valid.

    `key` identifies the schemas in the cache: the topic id and the revision.
    """
    from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

    schemas = _compiled.get(key)
    if schemas is None:
        if len(_compiled) >= COMPILED_MAX:
            _compiled.clear()
        schemas = _compiled[key] = TopicSchemas.stored(stored)
    return [_violation(schemas, *event) for event in events]


def _violation(schemas: Any, event_type: str, payload: bytes) -> Violation | None:
    from kwire.errors import InvalidEvent, SchemaViolation
    from kwire.streams.events.event import checked_json

    try:
        schemas.check(event_type, payload)
        checked_json(payload)  # readers must be able to decode the payload
    except SchemaViolation as error:
        return Violation(error.path, error.problem)
    except InvalidEvent as error:
        return Violation("$", error.message)
    return None

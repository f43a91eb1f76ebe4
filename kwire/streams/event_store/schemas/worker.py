"""A process beside the server for what schemas take long for: judging new ones, and very large payloads.

What takes more than `SECONDS_MAX` of processor time there ends with the process, and is refused: nobody holds up the
others for long. A process that died of something else says nothing about what it was asked: that can be tried again.
"""

import signal
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kwire.broker.worker_process import WorkerDied, WorkerProcess
from kwire.errors import ErrorCode, KafkaError

R = TypeVar("R")

SECONDS_MAX = 10.0
# Topics whose compiled schemas the process keeps.
COMPILED_MAX = 20


class TookTooLong(Exception):
    """The process could not do it in time."""


class Run(Protocol):
    """Has a function of a module done elsewhere; raises TookTooLong, or KafkaError if it cannot be done now."""

    def __call__(self, function: Any, *args: Any) -> Awaitable[Any]: ...


class SchemaWorker:
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
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the check was cut off, try again") from error
            raise TookTooLong(f"it could not be checked within {self._seconds_max:g} seconds") from error

    async def close(self) -> None:
        self._is_closed = True
        await self._worker.close()


# --- on the other side


def _limited(seconds_max: float, function: Any, args: tuple[Any, ...]) -> Any:
    # Nobody handles this signal there, so it ends the process, also in the middle of compiled code. It counts what the
    # process does, not how long others keep it from doing it: that would refuse good events on a busy machine.
    signal.setitimer(signal.ITIMER_PROF, seconds_max)
    try:
        return function(*args)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


_compiled: dict[tuple[str, int], Any] = {}


class Violation(NamedTuple):
    """SchemaViolation as plain values."""

    path: str
    problem: str


def violations(
    key: tuple[str, int], stored: Mapping[str, Any], events: Sequence[tuple[str, bytes]]
) -> list[Violation | None]:
    """Where each payload violates the schema of its type, and how. `key` stands for these very schemas."""
    from kwire.broker.store.schemas import TopicSchemas

    schemas = _compiled.get(key)
    if schemas is None:
        if len(_compiled) >= COMPILED_MAX:
            _compiled.clear()
        schemas = _compiled[key] = TopicSchemas.stored(stored)
    return [_violation(schemas, *event) for event in events]


def _violation(schemas: Any, event_type: str, payload: bytes) -> Violation | None:
    from kwire.broker.events.event import checked_json
    from kwire.errors import InvalidEvent, SchemaViolation

    try:
        schemas.check(event_type, payload)
        checked_json(payload)  # readers have to be able to show it
    except SchemaViolation as error:
        return Violation(error.path, error.problem)
    except InvalidEvent as error:
        return Violation("$", error.message)
    return None

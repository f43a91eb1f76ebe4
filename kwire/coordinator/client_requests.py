"""Sends commands to a coordinator and returns the answers as values or awaitables."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from kwire.concurrency.chunking import yield_to_loop
from kwire.coordinator.coordinator import Coordinator
from kwire.coordinator.decisions import Command
from kwire.errors import ErrorCode, KafkaError

# The maximum number of commands that one request submits per iteration of the event loop. A request may name very many
# groups.
COMMANDS_PER_CHUNK = 100

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")


def answer_of(coordinator: Coordinator[Any], command: Command[A], convert: Callable[[A], R]) -> R | Awaitable[R]:
    """Submit a command and return its answer, converted by `convert`, or a future if the answer is not available yet.

    Most heartbeats are answered during the call and need no future.
    """
    slot = _Slot(convert)
    coordinator.submit(command, slot.put)
    return slot.take()


def answer_of_steps(submit: Callable[[Callable[[A], None]], None], convert: Callable[[A], R]) -> R | Awaitable[R]:
    """Call `submit` and return the answer as `answer_of` does. `submit` gets a callback and calls it with the answer.

    For requests that submit several commands one after the other.
    """
    slot = _Slot(convert)
    submit(slot.put)
    return slot.take()


async def resolved_answer(response: R | Awaitable[R]) -> R:
    """Return the answer itself: `response` is a result of `answer_of`, which may be a future."""
    return await response if isinstance(response, Awaitable) else response


def combined_answers(responses: Iterable[R | Awaitable[R]], convert: Callable[[list[R]], S]) -> S | Awaitable[S]:
    """Combine several answers by `convert`.

    Returns the combined answer if there are fewer than COMMANDS_PER_CHUNK answers and all are available. Otherwise
    returns an awaitable. Each step of the iterator `responses` submits a command, so at most COMMANDS_PER_CHUNK steps
    are done per iteration of the event loop.
    """
    left = iter(responses)
    first = list(islice(left, COMMANDS_PER_CHUNK))
    if len(first) == COMMANDS_PER_CHUNK or any(isinstance(response, Awaitable) for response in first):
        return _gathered(first, left, convert)
    return convert([response for response in first if not isinstance(response, Awaitable)])


class HasError(Protocol):
    @property
    def error(self) -> ErrorCode: ...


E = TypeVar("E", bound=HasError)


async def answers_of_all_shards(coordinator: Coordinator[Any], command_for: Callable[[str], Command[E]]) -> list[E]:
    """Return the answers of all shards. Raises KafkaError if any shard fails, because a partial list would be wrong."""
    answers = []
    for shard_key in coordinator.shard_keys:
        answer = answer_of(coordinator, command_for(shard_key), _unchanged)
        answers.append(await answer if isinstance(answer, Awaitable) else answer)
        await yield_to_loop()
    for one in answers:
        if one.error is ErrorCode.NOT_COORDINATOR:
            # NOT_COORDINATOR would make the client search for another node, but this node has all shards.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if one.error is not ErrorCode.NONE:
            raise KafkaError(one.error)
    return answers


def _unchanged(answer: A) -> A:
    return answer


async def _gathered(
    some: list[R | Awaitable[R]], left: Iterator[R | Awaitable[R]], convert: Callable[[list[R]], S]
) -> S:
    answers: list[R] = []
    while some:
        answers += [await response if isinstance(response, Awaitable) else response for response in some]
        await yield_to_loop()
        some = list(islice(left, COMMANDS_PER_CHUNK))
    return convert(answers)


class _Slot(Generic[A, R]):
    """Holds the converted answer. If `take` is called before the answer is known, holds a future for it."""

    __slots__ = ("_future", "_has_response", "_response", "_shape")

    _response: R

    def __init__(self, convert: Callable[[A], R]) -> None:
        self._shape = convert
        self._has_response = False
        self._future: asyncio.Future[R] | None = None

    def put(self, answer: A) -> None:
        if self._future is None:
            self._response = self._shape(answer)
            self._has_response = True
        elif not self._future.done():
            # A future that is already done was cancelled: the client has disconnected.
            self._future.set_result(self._shape(answer))

    def take(self) -> R | Awaitable[R]:
        if self._has_response:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future

"""The one place where a coordinator's callback becomes something a handler can wait for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from kwire.broker.chunking import next_turn
from kwire.coordinator.coordinator import Coordinator
from kwire.coordinator.decisions import Command
from kwire.errors import ErrorCode, KafkaError

# Groups, or transactional ids, that one request asks about in one turn of the loop; a request can name very many.
ASKED_PER_TURN = 100

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")


def answer_of(coordinator: Coordinator[Any], command: Command[A], shape: Callable[[A], R]) -> R | Awaitable[R]:
    """Ask, and give the answer in the caller's shape: at once if it is already there, else as a future.

    Most heartbeats are answered within the call; they never cost a future.
    """
    slot = _Slot(shape)
    coordinator.ask(command, slot.put)
    return slot.take()


def answer_from(ask: Callable[[Callable[[A], None]], None], shape: Callable[[A], R]) -> R | Awaitable[R]:
    """The same where asking takes several steps: `ask` is given what to call once with the answer."""
    slot = _Slot(shape)
    ask(slot.put)
    return slot.take()


async def settled(response: R | Awaitable[R]) -> R:
    """What `answer_of` gave, for a coroutine: it waits only for an answer that is not there."""
    return await response if isinstance(response, Awaitable) else response


def all_of(responses: Iterable[R | Awaitable[R]], shape: Callable[[list[R]], S]) -> S | Awaitable[S]:
    """Several answers as one: at once if they are few and all there, else when the last has come.

    Questions are asked as `responses` are taken, which is done in turns.
    """
    left = iter(responses)
    first = list(islice(left, ASKED_PER_TURN))
    if len(first) == ASKED_PER_TURN or any(isinstance(response, Awaitable) for response in first):
        return _gathered(first, left, shape)
    return shape([response for response in first if not isinstance(response, Awaitable)])


class HasError(Protocol):
    @property
    def error(self) -> ErrorCode: ...


E = TypeVar("E", bound=HasError)


async def every_shard(coordinator: Coordinator[Any], command_for: Callable[[str], Command[E]]) -> list[E]:
    """What each shard says of all that it keeps. Raises KafkaError if one cannot: half a list would be a wrong one."""
    answers = []
    for shard_key in coordinator.shard_keys:
        answer = answer_of(coordinator, command_for(shard_key), _as_it_is)
        answers.append(await answer if isinstance(answer, Awaitable) else answer)
        await next_turn()
    for one in answers:
        if one.error is ErrorCode.NOT_COORDINATOR:
            # To look for another coordinator would not help: this node has them all.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if one.error is not ErrorCode.NONE:
            raise KafkaError(one.error)
    return answers


def _as_it_is(answer: A) -> A:
    return answer


async def _gathered(some: list[R | Awaitable[R]], left: Iterator[R | Awaitable[R]], shape: Callable[[list[R]], S]) -> S:
    answers: list[R] = []
    while some:
        answers += [await response if isinstance(response, Awaitable) else response for response in some]
        await next_turn()
        some = list(islice(left, ASKED_PER_TURN))
    return shape(answers)


class _Slot(Generic[A, R]):
    """Room for one response, and for the future of whoever came before it."""

    __slots__ = ("_future", "_has_response", "_response", "_shape")

    _response: R

    def __init__(self, shape: Callable[[A], R]) -> None:
        self._shape = shape
        self._has_response = False
        self._future: asyncio.Future[R] | None = None

    def put(self, answer: A) -> None:
        if self._future is None:
            self._response = self._shape(answer)
            self._has_response = True
        elif not self._future.done():
            # Done before the answer came means cancelled: the client has gone.
            self._future.set_result(self._shape(answer))

    def take(self) -> R | Awaitable[R]:
        if self._has_response:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future

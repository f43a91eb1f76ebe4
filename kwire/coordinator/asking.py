"""The one place where a coordinator's callback becomes something a handler can wait for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from kwire.coordinator.group.coordinator import GroupCoordinator, NamesGroup

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")


def answer_of(coordinator: GroupCoordinator, command: NamesGroup[A], shape: Callable[[A], R]) -> R | Awaitable[R]:
    """Ask, and give the answer in the caller's shape: at once if it is already there, else as a future.

    Most heartbeats are answered within the call; they never cost a future.
    """
    slot: _Slot[R] = _Slot()
    coordinator.ask(command, lambda answer: slot.put(shape(answer)))
    return slot.take()


def all_of(responses: Sequence[R | Awaitable[R]], shape: Callable[[list[R]], S]) -> S | Awaitable[S]:
    """Several answers as one: at once if all are there, else when the last has come."""
    if any(isinstance(response, Awaitable) for response in responses):
        return _gathered(responses, shape)
    return shape([response for response in responses if not isinstance(response, Awaitable)])


async def _gathered(responses: Sequence[R | Awaitable[R]], shape: Callable[[list[R]], S]) -> S:
    return shape([await response if isinstance(response, Awaitable) else response for response in responses])


class _Slot(Generic[R]):
    """Room for one response, and for the future of whoever came before it."""

    __slots__ = ("_future", "_response")

    def __init__(self) -> None:
        self._response: list[R] = []
        self._future: asyncio.Future[R] | None = None

    def put(self, response: R) -> None:
        if self._future is None:
            self._response.append(response)
        elif not self._future.done():
            # Done before the answer came means cancelled: the client has gone.
            self._future.set_result(response)

    def take(self) -> R | Awaitable[R]:
        if self._response:
            return self._response[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future

"""BatchedRequests: one request at a time, for everything that was asked since the last one.

batched = BatchedRequests(send, weight_max=100)
answer = await batched.ask("orders", question)

Questions about single topics arrive together when many topics are used for the first time. What is asked while a
request is in flight waits, and is part of the next one. No I/O: `send` sends the request.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from kwire.errors import ErrorCode, KafkaError, as_value

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class _Waiting(Generic[Question, Answer]):
    __slots__ = ("answer", "name", "question", "weight")

    def __init__(self, name: str, question: Question, weight: int, answer: "asyncio.Future[Answer]") -> None:
        self.name = name
        self.question = question
        self.weight = weight
        self.answer = answer


class BatchedRequests(Generic[Question, Answer]):
    """Use it in the event loop's thread. The number of questions that wait is bounded by that of the callers."""

    def __init__(
        self, send: Callable[[Sequence[Question]], Awaitable[Mapping[str, Answer | KafkaError]]], weight_max: int
    ) -> None:
        """`send` returns the answers by name. An error that it raises is that of all questions of the request.

        The weights of the questions of one request are together at most `weight_max`, unless it has only one question.
        """
        self._send = send
        self._weight_max = weight_max
        self._waiting: deque[_Waiting[Question, Answer]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, name: str, question: Question, weight: int = 1) -> Answer:
        """Return the answer, or raise its error. Questions with the same name are in different requests, in order.

        If the caller is cancelled before the question is sent, it is not sent.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting[Question, Answer](name, question, weight, loop.create_future())
        self._waiting.append(waiting)
        if self._task is None:
            # It begins in the next iteration of the loop, with everything that is asked in this one.
            self._task = loop.create_task(self._run())
        return await waiting.answer

    async def _run(self) -> None:
        batch: list[_Waiting[Question, Answer]] = []
        try:
            while batch := self._next_batch():
                try:
                    _answer(batch, await self._send([one.question for one in batch]))
                except Exception as error:
                    for one in batch:
                        _fail(one, as_value(error))
        finally:
            self._task = None
            for one in (*batch, *self._waiting):
                one.answer.cancel()
            self._waiting.clear()

    def _next_batch(self) -> list[_Waiting[Question, Answer]]:
        batch: list[_Waiting[Question, Answer]] = []
        names: set[str] = set()
        later: list[_Waiting[Question, Answer]] = []
        weight = 0
        while self._waiting:
            one = self._waiting[0]
            if batch and weight + one.weight > self._weight_max:
                break
            self._waiting.popleft()
            if one.answer.done():
                continue  # its caller was cancelled
            if one.name in names:
                later.append(one)
                continue
            batch.append(one)
            names.add(one.name)
            weight += one.weight
        self._waiting.extendleft(reversed(later))
        return batch


def _answer(batch: Sequence[_Waiting[Question, Answer]], answers: Mapping[str, Answer | KafkaError]) -> None:
    for one in batch:
        answer = answers.get(one.name)
        if answer is None:
            _fail(one, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response does not answer for {one.name!r}"))
        elif isinstance(answer, KafkaError):
            _fail(one, answer)
        elif not one.answer.done():
            one.answer.set_result(answer)


def _fail(one: _Waiting[Question, Answer], error: Exception) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)

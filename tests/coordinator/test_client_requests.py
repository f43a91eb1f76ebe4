"""Answers of a coordinator as values or awaitables: immediate where possible, in chunks for long requests."""

import asyncio
from collections.abc import Awaitable, Iterator

from kwire.coordinator import client_requests as asking
from kwire.coordinator.client_requests import combined_answers


def test_few_answers_that_are_there_are_given_at_once() -> None:
    assert combined_answers(iter([1, 2, 3]), sum) == 6
    assert combined_answers([], len) == 0


def test_answers_that_come_later_keep_their_places() -> None:
    async def late(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def run() -> list[int]:
        questions: list[int | Awaitable[int]] = [late(1), 2, late(3)]
        answer = combined_answers(questions, list)
        assert isinstance(answer, Awaitable)
        return await answer

    assert asyncio.run(run()) == [1, 2, 3]


def test_many_questions_are_asked_in_turns() -> None:
    """Also if every answer is there at once: asking takes time too."""
    count = 3 * asking.COMMANDS_PER_CHUNK
    asked = 0
    asked_by_turn: list[int] = []

    def questions() -> Iterator[int]:
        nonlocal asked
        for number in range(count):
            asked += 1
            yield number

    async def run() -> list[int]:
        answer = combined_answers(questions(), list)
        assert isinstance(answer, Awaitable)
        waiting = asyncio.ensure_future(answer)
        while not waiting.done():
            asked_by_turn.append(asked)
            await asyncio.sleep(0)
        return await waiting

    assert asyncio.run(run()) == list(range(count))
    steps = [later - earlier for earlier, later in zip([0, *asked_by_turn], asked_by_turn, strict=False)]
    assert max(steps) == asking.COMMANDS_PER_CHUNK

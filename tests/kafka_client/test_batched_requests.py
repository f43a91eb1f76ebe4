"""Questions that arrive together become one request; each caller gets its own answer or error."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.batched_requests import BatchedRequests
from kwire.kafka_client.errors import NotSent
from tests.support.node import in_loop


class Requests:
    """Requests that wait until the test answers them."""

    def __init__(self, weight_max: int = 3) -> None:
        self.batched = BatchedRequests(self._send, weight_max)
        self.sent: list[Sequence[str]] = []
        self._answers: list[asyncio.Future[Mapping[str, str | KafkaError]]] = []

    async def _send(self, questions: Sequence[str]) -> Mapping[str, str | KafkaError]:
        self.sent.append(list(questions))
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def ask(self, name: str, question: str | None = None, weight: int = 1) -> asyncio.Task[str]:
        return asyncio.create_task(self.batched.ask(name, question or name, weight))

    async def answer(self, answers: Mapping[str, str | KafkaError] | BaseException | None = None) -> None:
        """Answer the request that is in flight, with the questions themselves if nothing else is given."""
        future = self._answers[len(self.sent) - 1]
        if isinstance(answers, BaseException):
            future.set_exception(answers)
        else:
            future.set_result({one[0]: one for one in self.sent[-1]} if answers is None else answers)
        await settle()


async def settle() -> None:
    """Let everything happen that needs no answer."""
    for _ in range(10):
        await asyncio.sleep(0)


@in_loop
async def test_what_is_asked_together_is_one_request_and_the_next_one_has_what_came_meanwhile() -> None:
    requests = Requests()
    first = [requests.ask(name) for name in "ab"]
    await settle()
    assert requests.sent == [["a", "b"]]
    second = [requests.ask(name) for name in "cdef"]
    await settle()
    assert len(requests.sent) == 1
    await requests.answer()
    assert [one.result() for one in first] == ["a", "b"]
    assert requests.sent[1:] == [["c", "d", "e"]]
    await requests.answer()
    assert requests.sent[2:] == [["f"]]
    await requests.answer()
    assert [one.result() for one in second] == ["c", "d", "e", "f"]
    again = requests.ask("a")
    await settle()
    await requests.answer()
    assert again.result() == "a"


@in_loop
async def test_each_question_gets_its_own_error() -> None:
    requests = Requests()
    a, b, c = (requests.ask(name) for name in "abc")
    await settle()
    refused = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "b exists")
    await requests.answer({"a": "created", "b": refused})
    assert a.result() == "created"
    assert b.exception() is refused
    assert "does not answer for 'c'" in str(c.exception())


@pytest.mark.parametrize("error", [NotSent("there is no broker"), ValueError("it cannot be encoded")])
@in_loop
async def test_an_error_of_the_request_is_that_of_all_its_questions_and_of_no_others(error: Exception) -> None:
    requests = Requests()
    failed = [requests.ask(name) for name in "ab"]
    await settle()
    later = requests.ask("c")
    await settle()
    await requests.answer(error)
    assert [type(one.exception()) for one in failed] == [type(error)] * 2
    await requests.answer()
    assert later.result() == "c"


@in_loop
async def test_questions_about_one_name_are_in_different_requests_and_in_order() -> None:
    requests = Requests()
    asked = [requests.ask(question[0], question) for question in ("a1", "a2", "b1", "a3", "b2")]
    await settle()
    for _ in range(3):
        await requests.answer()
    assert requests.sent == [["a1", "b1"], ["a2", "b2"], ["a3"]]
    assert [one.result() for one in asked] == ["a1", "a2", "b1", "a3", "b2"]


@in_loop
async def test_a_heavy_question_is_alone() -> None:
    requests = Requests()
    asked = [requests.ask("a"), requests.ask("b", weight=3), requests.ask("c"), requests.ask("d", weight=100)]
    await settle()
    while not all(one.done() for one in asked):
        await requests.answer()
    assert requests.sent == [["a"], ["b"], ["c"], ["d"]]


@in_loop
async def test_a_question_whose_caller_was_cancelled_is_not_sent() -> None:
    requests = Requests()
    sent = requests.ask("a")
    await settle()
    waiting, other = requests.ask("b"), requests.ask("c")
    await settle()
    sent.cancel()
    waiting.cancel()
    await settle()
    await requests.answer()
    assert requests.sent == [["a"], ["c"]]
    await requests.answer()
    assert other.result() == "c"

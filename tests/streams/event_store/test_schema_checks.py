"""Schema checks of events and records: what is refused, how checks are chunked, and what the worker does."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError, SchemaViolation
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.event_store.pending_commit import Outcome
from kwire.streams.event_store.schemas import payload_checks as schema_checks
from kwire.streams.event_store.schemas.payload_checks import INLINE_WORK_MAX, SchemaChecks
from kwire.streams.event_store.schemas.worker import SchemaWorker, WorkerTimeout
from storage.batch.format import GZIP, LZ4, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch
from storage.errors import CorruptBatch, RecordProblem
from tests.support import worker_calls
from tests.support.event_store import events_of
from tests.support.node import QuietNode, in_loop, run_here

NUMBERED = {"eventType": "numbered", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
# Each comma may be followed by a value, whatever the content.
LARGE = b'{"n":1,"padding":"' + b"," * INLINE_WORK_MAX + b'"}'
LARGE_AND_WRONG = LARGE.replace(b"1", b"true", 1)


class Doors:
    """A node whose event store checks schemas; `ran` are the names of the functions run by the worker."""

    def __init__(self, node: QuietNode) -> None:
        self.node = node
        self.ran: list[str] = []
        self.topics = EventTopics(node.topics, node.metastore, self.run)
        self.checks = SchemaChecks(self.topics.schemas_and_revision, self.run)
        node.event_checks.check_draft = self.checks.check_draft
        node.event_checks.check_batch = self.checks.check_batch

    async def run(self, function: Any, *args: Any) -> Any:
        self.ran.append(function.__name__)
        return await run_here(function, *args)

    async def check(self, topic: Topic, batch: memoryview) -> Sequence[RecordProblem]:
        found = self.checks.check_batch(topic, batch, check_batch(batch))
        return await found if isinstance(found, asyncio.Future) else found


def record(value: bytes | None, event_type: bytes | None = b"numbered") -> Record:
    headers = [] if event_type is None else [("ce_type", event_type)]
    return Record(None, value, 1_700_000_000_000, headers)


def batch_of(*records: Record, compression: int = 0) -> memoryview:
    return memoryview(build_batch(records, compression=compression))


def draft(payload: bytes, event_type: str = "numbered", topic: str = "numbers") -> EventDraft:
    return EventDraft(topic, event_type, payload)


# --- published events


@pytest.mark.proves("S2-1", "S2-15", "S2-31")
@in_loop
async def test_one_event_that_its_schema_refuses_keeps_all_of_them_out(node: QuietNode) -> None:
    doors = Doors(node)
    numbers, words = (
        await doors.topics.create("numbers", [NUMBERED]),
        await doors.topics.create("words", [{"type": "word"}]),
    )
    good, other = draft(b'{"n":1}'), draft(b'"x"', "word", "words")
    for bad in (draft(b'{"n":"1"}'), draft(b"{}"), draft(b'{"n":1}', "other"), draft(b'{"n":1}', "numbered", "words")):
        with pytest.raises(SchemaViolation) as caught:
            await node.event_store.publish([good, other, bad, good])
        assert caught.value.details["index"] == 2
    assert events_of(numbers) == events_of(words) == []
    ids = await node.event_store.publish([good, other, good])
    assert [str(one) for one in ids] == ["numbers-1", "words-1", "numbers-2"]


@in_loop
async def test_schemas_that_have_grown_count_at_once(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    with pytest.raises(SchemaViolation):
        await node.event_store.publish([draft(b"1", "other")])
    await doors.topics.evolve(numbers, [{"type": "other"}], is_whole=False)
    await node.event_store.publish([draft(b"1", "other")])


@in_loop
async def test_large_payloads_are_checked_by_a_worker(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    doors.ran.clear()
    await node.event_store.publish([draft(b'{"n":1}'), draft(LARGE)])
    assert doors.ran == ["violations"]
    with pytest.raises(SchemaViolation) as caught:
        await node.event_store.publish([draft(b'{"n":1}'), draft(LARGE_AND_WRONG)])
    assert (caught.value.path, caught.value.details["index"]) == ("$.n", 1)
    assert len(events_of(numbers)) == 2


@in_loop
async def test_what_cannot_be_checked_in_time_is_refused(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])

    async def never(function: Any, *args: Any) -> Any:
        raise WorkerTimeout("the check exceeded 10 seconds")

    checks = SchemaChecks(doors.topics.schemas_and_revision, never)
    node.event_checks.check_draft = checks.check_draft
    with pytest.raises(SchemaViolation, match="exceeded 10 seconds"):
        await node.event_store.publish([draft(LARGE)])
    found = checks.check_batch(numbers, *_with_header(batch_of(record(b'{"n":1}'), record(LARGE))))
    assert isinstance(found, asyncio.Future)
    ((number, message),) = await found
    assert number == 1
    assert "exceeded 10 seconds" in message


def _with_header(batch: memoryview) -> tuple[memoryview, Any]:
    return batch, check_batch(batch)


@in_loop
async def test_only_so_many_large_events_wait_for_the_worker(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_checks, "WORKER_EVENTS_MAX", 1)
    doors = Doors(node)
    await doors.topics.create("numbers", [NUMBERED])
    going = asyncio.Event()

    async def wait(function: Any, *args: Any) -> Any:
        await going.wait()
        return await run_here(function, *args)

    node.event_checks.check_draft = SchemaChecks(doors.topics.schemas_and_revision, wait).check_draft
    first = asyncio.ensure_future(node.event_store.publish([draft(LARGE)]))
    await asyncio.sleep(0)
    with pytest.raises(KafkaError) as caught:
        await node.event_store.publish([draft(LARGE)])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    going.set()
    assert len(await first) == 1


@in_loop
async def test_many_events_let_others_have_their_turn(node: QuietNode) -> None:
    doors = Doors(node)
    await doors.topics.create("numbers", [NUMBERED])
    payload = json.dumps({"n": 1, "padding": "," * 5000}).encode()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert len(await node.event_store.publish([draft(payload) for _ in range(50)])) == 50
    counting.cancel()
    assert turns >= 7


# --- records of producers


@pytest.mark.proves("S2-15", "S2-31")
@pytest.mark.parametrize("compression", [0, GZIP, SNAPPY, LZ4, ZSTD])
@in_loop
async def test_every_bad_record_of_a_batch_is_named(node: QuietNode, compression: int) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    batch = batch_of(
        record(b'{"n":1}'),
        record(b'{"n":"1"}'),
        record(b"no json"),
        record(None),
        record(b'{"n":2}', None),
        record(b'{"n":2}', b"other"),
        record(b'{"n":3}'),
        compression=compression,
    )
    problems = await doors.check(numbers, batch)
    assert [one.number for one in problems] == [1, 2, 3, 4, 5]
    words = [
        "$.n: ",
        "not JSON",
        "null is not of type",
        "'message': $: the topic has no schema",
        "'other': $: the topic",
    ]
    for problem, word in zip(problems, words, strict=True):
        assert word in problem.message
    assert await doors.check(numbers, batch_of(record(b'{"n":1}'), compression=compression)) == []


@pytest.mark.parametrize("compression", [0, ZSTD])
@in_loop
async def test_large_batches_are_checked_in_portions(node: QuietNode, compression: int) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    count = 5000
    bad = {17, 2500, 4999}
    records = [record(b'{"n":"bad"}' if number in bad else b'{"n":%d}' % number) for number in range(count)]
    batch = batch_of(*records, compression=compression)
    checking = doors.checks.check_batch(numbers, batch, check_batch(batch))
    assert isinstance(checking, asyncio.Future)
    turns = 0
    while not checking.done():
        turns += 1
        await asyncio.sleep(0)
    assert {one.number for one in checking.result()} == bad
    assert turns >= 5
    await asyncio.sleep(0)
    assert doors.checks._checking == set()


@in_loop
async def test_a_batch_of_bad_records_is_looked_at_only_so_far(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    problems = await doors.check(numbers, batch_of(*[record(b'"' + b"x" * 1000 + b'"')] * 3000))
    assert len(problems) == schema_checks.PROBLEMS_MAX
    assert max(len(one.message) for one in problems) <= schema_checks.PROBLEM_LENGTH_MAX


@in_loop
async def test_large_records_are_checked_by_a_worker(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    doors.ran.clear()
    problems = await doors.check(numbers, batch_of(record(LARGE), record(b'{"n":1}'), record(LARGE_AND_WRONG)))
    assert [one.number for one in problems] == [2]
    # In one call: a round trip to the worker takes longer than most checks.
    assert doors.ran == ["violations"]
    more_than_once = [record(LARGE_AND_WRONG)] * 10
    problems = await doors.check(numbers, batch_of(record(b"{}"), *more_than_once, record(b"{}")))
    assert [one.number for one in problems] == list(range(12))
    assert doors.ran == ["violations"] * 3


SLOW = {"eventType": "numbered", "items": {"dependentRequired": {f"n{number}": ["a"] for number in range(3000)}}}
DEEP = b'{"a":' * 100 + b"1" + b"}" * 100
CHOICE = {
    "eventType": "numbered",
    "anyOf": [{"properties": {"a": {"$ref": "#"}}, "type": "object"}, {"type": "string"}],
}


@in_loop
async def test_schemas_that_are_slow_and_words_that_take_long_are_for_the_worker(node: QuietNode) -> None:
    doors = Doors(node)
    slow, choice = await doors.topics.create("slow", [SLOW]), await doors.topics.create("choice", [CHOICE])
    doors.ran.clear()
    await node.event_store.publish([draft(b"[" + b"{}," * 100 + b"{}]", topic="slow")])
    assert doors.ran == ["violations"]
    with pytest.raises(SchemaViolation, match="is not valid under"):
        await node.event_store.publish([draft(DEEP, topic="choice")])
    (problem,) = await doors.check(choice, batch_of(record(DEEP)))
    assert "is not valid under" in problem.message
    assert doors.ran == ["violations"] * 3
    assert await doors.check(slow, batch_of(record(b"[{}]"))) == []
    assert doors.ran == ["violations"] * 3


@in_loop
async def test_a_batch_that_the_server_could_not_check_can_be_sent_again(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    worker = SchemaWorker()
    checks = SchemaChecks(doors.topics.schemas_and_revision, worker.run)
    node.event_checks.check_batch = checks.check_batch
    batch, header = _with_header(batch_of(record(LARGE)))
    told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    node.event_store.produce(numbers, batch, header, told.set_result)
    await worker.close()
    outcome = await told
    assert isinstance(outcome, KafkaError)
    assert (outcome.code, outcome.message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is stopping")
    assert events_of(numbers) == []


@in_loop
async def test_nobody_looks_at_a_batch_for_ever(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_checks, "BATCH_SECONDS_MAX", 0.01)
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])

    async def never(function: Any, *args: Any) -> Any:
        await asyncio.Event().wait()

    checks = SchemaChecks(doors.topics.schemas_and_revision, never)
    found = checks.check_batch(numbers, *_with_header(batch_of(record(LARGE))))
    assert isinstance(found, asyncio.Future)
    with pytest.raises(KafkaError) as caught:
        await found
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("compression", [0, GZIP])
@in_loop
async def test_records_that_are_none_are_refused(node: QuietNode, compression: int) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    batch = bytearray(build_batch([record(b'{"n":1}')] * 3, compression=compression))
    header = replace(check_batch(memoryview(batch)), record_count=2)
    if compression:
        batch = bytearray(batch[:-4])
        (problem,) = await doors.checks.check_batch(numbers, memoryview(batch), header)  # type: ignore[misc]
        assert problem.number == 0
    else:
        with pytest.raises(CorruptBatch):
            doors.checks.check_batch(numbers, memoryview(batch), header)


@in_loop
async def test_what_is_nested_too_deep_for_readers_is_refused(node: QuietNode) -> None:
    doors = Doors(node)
    deep = await doors.topics.create("deep", [{"type": "numbered"}])
    for depth, is_taken in ((100, True), (900, False), (100_000, False), (INLINE_WORK_MAX, False)):
        problems = await doors.check(deep, batch_of(record(b"[" * depth + b"]" * depth)))
        assert (not problems) == is_taken, depth


@in_loop
async def test_a_topic_that_is_gone_meanwhile_takes_nothing(node: QuietNode) -> None:
    doors = Doors(node)
    numbers = await doors.topics.create("numbers", [NUMBERED])
    await node.topics.delete(numbers)
    doors.topics._compiled.clear()
    for compression in (0, ZSTD):
        with pytest.raises(KafkaError) as caught:
            await doors.check(numbers, batch_of(record(b'{"n":1}'), compression=compression))
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- the process


@in_loop
async def test_the_worker_keeps_schemas_apart_and_lives_on_after_a_refusal(node: QuietNode) -> None:
    worker = SchemaWorker()
    topics = EventTopics(node.topics, node.metastore, run_here)
    node.event_checks.check_draft = SchemaChecks(topics.schemas_and_revision, worker.run).check_draft
    await topics.create("numbers", [NUMBERED])
    await topics.create("lists", [{"eventType": "numbered", "type": "array"}])
    try:
        await node.event_store.publish([draft(LARGE)])
        for _ in range(2):
            with pytest.raises(SchemaViolation, match="array"):
                await node.event_store.publish([draft(LARGE, topic="lists")])
        await node.event_store.publish([draft(LARGE)])
    finally:
        await worker.close()


@in_loop
async def test_a_check_that_does_not_end_is_ended() -> None:
    worker = SchemaWorker(seconds_max=0.3)
    try:
        with pytest.raises(WorkerTimeout):
            await worker.run(worker_calls.work_until_killed)
        # The next one gets another process.
        assert await worker.run(worker_calls.print_something) == "answer"
    finally:
        await worker.close()


@in_loop
async def test_a_check_that_was_cut_off_by_something_else_can_be_tried_again() -> None:
    worker = SchemaWorker()
    try:
        with pytest.raises(KafkaError) as caught:
            await worker.run(worker_calls.be_killed)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        await worker.close()

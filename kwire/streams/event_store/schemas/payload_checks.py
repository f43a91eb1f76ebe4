"""Events against the schemas of their topic, at every door, without holding up the loop.

Small ones are checked at once. Many of them are checked in portions, others get their turn in between. A payload
that may take longer than some milliseconds goes to a worker: because it is large, or its schema is slow, or because to
say what is wrong with it takes long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kwire.broker.events.event import checked_json
from kwire.broker.partition import WAIT_MS_MAX
from kwire.broker.store.event_store import EventDraft
from kwire.broker.store.schema_worker import Run, TookTooLong, Violation, violations
from kwire.broker.store.typed_records import TypedRecord, typed_records
from kwire.broker.topics import Topic
from kwire.errors import (
    ErrorCode,
    InvalidEvent,
    KafkaError,
    SchemaViolation,
    StreamError,
    TopicNotFound,
    UnwordedViolation,
)
from storage.batch import BatchHeader
from storage.errors import RecordProblem, StorageError
from storage.format import HEADER_BYTES

if TYPE_CHECKING:
    from kwire.broker.store.schemas import TopicSchemas

# In the units of `schema_costs.py`: so much takes about three milliseconds at the worst.
WORK_HERE_MAX = 128 * 1024
# Then others get their turn: a millisecond or two, as a rule far less.
PORTION_WORK = 128 * 1024
# What one record takes besides.
RECORD_WORK = 150
# Records of a batch that are given to the worker at once; one that is larger goes alone.
CALL_BYTES_MAX = 1024 * 1024
CALL_WORK_MAX = 50_000_000
# What may be spent on one batch, whoever looks at it; by then its producer has been told that the time is over.
BATCH_SECONDS_MAX = WAIT_MS_MAX / 1000
# A compressed batch is unfolded on the loop if it is small; else by a thread.
FOLDED_HERE_BYTES = 64 * 1024
UNFOLDED_HERE_BYTES = 256 * 1024
# What a batch may unfold to: as readers of events have it.
UNFOLDED_BYTES_MAX = 64 * 1024 * 1024
# Problems that are looked for in one batch, and what is said about one.
PROBLEMS_MAX = 1000
PROBLEM_LENGTH_MAX = 300
# Events of publishers that wait for the worker; batches of producers are bounded by what may wait for its commit.
ELSEWHERE_MAX = 100
# JSON with fewer bytes cannot be nested so deep that readers could not show it.
SHALLOW_BYTES_MAX = 500

_NULL_PAYLOAD = b"null"

SchemasOf = Callable[[Topic], "tuple[TopicSchemas, int]"]


class SchemaChecks:
    """`schemas_of` gives the schemas of a topic and their revision; raises a StreamError if there are none."""

    def __init__(self, schemas_of: SchemasOf, run: Run) -> None:
        self._schemas_of = schemas_of
        self._run = run
        # Done since others had their turn.
        self._work = 0
        self._elsewhere = 0
        # The loop alone does not keep them alive.
        self._checking: set[asyncio.Task[Sequence[RecordProblem]]] = set()

    # --- events

    def check_draft(self, topic: Topic, draft: EventDraft) -> Awaitable[object] | None:
        """Raise SchemaViolation, now or when the answer is awaited."""
        schemas, revision = self._schemas_of(topic)
        work = schemas.work(draft.type, draft.payload)
        if work > WORK_HERE_MAX:
            return self._check_large_draft(topic, schemas, revision, draft)
        try:
            schemas.check_here(draft.type, draft.payload, WORK_HERE_MAX)
        except UnwordedViolation:
            return self._check_large_draft(topic, schemas, revision, draft)
        self._work += work + RECORD_WORK
        if self._work > PORTION_WORK:
            self._work = 0
            return asyncio.sleep(0)
        return None

    async def _check_large_draft(self, topic: Topic, schemas: "TopicSchemas", revision: int, draft: EventDraft) -> None:
        if self._elsewhere >= ELSEWHERE_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many large events wait to be checked, try again")
        self._elsewhere += 1
        try:
            (found,) = await self._violations(topic, schemas, revision, [(draft.type, draft.payload)])
        finally:
            self._elsewhere -= 1
        if found is not None:
            raise SchemaViolation(draft.type, *found)

    async def _violations(
        self, topic: Topic, schemas: "TopicSchemas", revision: int, events: Sequence[tuple[str, bytes]]
    ) -> Sequence[Violation | None]:
        """What a worker finds wrong with each of them."""
        try:
            found: Sequence[Violation | None] = await self._run(
                violations, (topic.topic_id.hex(), revision), schemas.value(), events
            )
        except TookTooLong as error:
            return [Violation("$", str(error))] * len(events)
        return found

    # --- records

    def check_batch(
        self, topic: Topic, batch: memoryview, header: BatchHeader
    ) -> "Sequence[RecordProblem] | asyncio.Future[Sequence[RecordProblem]]":
        """What is wrong with the records of a producer's batch, now or later.

        Raises StorageError if they are none, KafkaError if the server cannot look at them.
        """
        payload = batch[HEADER_BYTES:]
        if not header.compression:
            body = bytes(payload)
            schemas, revision = self._schemas_for_batch(topic)
            if schemas.cost_max.work(body) + header.record_count * RECORD_WORK <= PORTION_WORK:
                problems = _problems(schemas, body, header)
                if problems is not None:
                    return problems
            checking = self._check_in_portions(topic, schemas, revision, body, header)
        else:
            checking = self._unfold_and_check(topic, bytes(payload), header)
        task = asyncio.get_running_loop().create_task(_told(checking))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)
        return task

    def _schemas_for_batch(self, topic: Topic) -> "tuple[TopicSchemas, int]":
        try:
            return self._schemas_of(topic)
        except TopicNotFound as error:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message) from error
        except StreamError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error

    async def _unfold_and_check(self, topic: Topic, payload: bytes, header: BatchHeader) -> Sequence[RecordProblem]:
        body = await _unfolded(payload, header)
        schemas, revision = self._schemas_for_batch(topic)
        return await self._check_in_portions(topic, schemas, revision, body, header)

    async def _check_in_portions(
        self, topic: Topic, schemas: "TopicSchemas", revision: int, body: bytes, header: BatchHeader
    ) -> Sequence[RecordProblem]:
        problems: list[RecordProblem] = []
        large = _LargeRecords()
        done = 0
        for record in typed_records(body, header):
            payload = _payload(record)
            work = schemas.work(record.type, payload)
            is_large = work > WORK_HERE_MAX
            if not is_large:
                done += work + RECORD_WORK
                try:
                    problem = _problem(schemas, record.type, payload)
                except UnwordedViolation:
                    is_large = True
                else:
                    if problem is not None:
                        problems.append(RecordProblem(record.number, problem))
            if is_large:
                if large.is_full_with(work, payload):
                    problems += await self._problems_elsewhere(topic, schemas, revision, large)
                    large = _LargeRecords()
                large.add(record, work, payload)
            if len(problems) >= PROBLEMS_MAX:
                break
            if done > PORTION_WORK:
                done = 0
                await asyncio.sleep(0)
        problems += await self._problems_elsewhere(topic, schemas, revision, large)
        return sorted(problems)[:PROBLEMS_MAX]

    async def _problems_elsewhere(
        self, topic: Topic, schemas: "TopicSchemas", revision: int, large: "_LargeRecords"
    ) -> list[RecordProblem]:
        if not large.records:
            return []
        events = [(record.type, _payload(record)) for record in large.records]
        found = await self._violations(topic, schemas, revision, events)
        return [
            RecordProblem(record.number, SchemaViolation(record.type, *one).message[:PROBLEM_LENGTH_MAX])
            for record, one in zip(large.records, found, strict=True)
            if one is not None
        ]


class _LargeRecords:
    """Records of one batch for one call of the worker."""

    def __init__(self) -> None:
        self.records: list[TypedRecord] = []
        self._work = 0
        self._size_bytes = 0

    def is_full_with(self, work: int, payload: bytes) -> bool:
        return bool(self.records) and (
            self._work + work > CALL_WORK_MAX or self._size_bytes + len(payload) > CALL_BYTES_MAX
        )

    def add(self, record: TypedRecord, work: int, payload: bytes) -> None:
        self.records.append(record)
        self._work += work
        self._size_bytes += len(payload)


async def _told(checking: Awaitable[Sequence[RecordProblem]]) -> Sequence[RecordProblem]:
    """What cannot be read is a problem too; of whoever sent it. A server that cannot look (KafkaError) is none."""
    try:
        async with asyncio.timeout(BATCH_SECONDS_MAX):
            return await checking
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the records could not be checked in time") from None
    except StorageError as error:
        return [RecordProblem(0, str(error)[:PROBLEM_LENGTH_MAX])]


def _problems(schemas: "TopicSchemas", body: bytes, header: BatchHeader) -> Sequence[RecordProblem] | None:
    """Of a small batch; None if it takes longer to say than to see."""
    problems: list[RecordProblem] = []
    try:
        for record in typed_records(body, header):
            problem = _problem(schemas, record.type, _payload(record))
            if problem is not None:
                problems.append(RecordProblem(record.number, problem))
    except UnwordedViolation:
        return None
    return problems


def _payload(record: TypedRecord) -> bytes:
    return _NULL_PAYLOAD if record.value is None else record.value


def _problem(schemas: "TopicSchemas", event_type: str, payload: bytes) -> str | None:
    """Raises UnwordedViolation."""
    try:
        schemas.check_here(event_type, payload, WORK_HERE_MAX)
        if len(payload) > SHALLOW_BYTES_MAX:
            checked_json(payload)
    except UnwordedViolation:
        raise
    except (SchemaViolation, InvalidEvent) as error:
        return error.message[:PROBLEM_LENGTH_MAX]
    return None


async def _unfolded(payload: bytes, header: BatchHeader) -> bytes:
    """The records of a compressed batch."""
    from storage.compression import decompress
    from storage.errors import BudgetExceeded

    if len(payload) <= FOLDED_HERE_BYTES:
        try:
            return decompress(header.compression, payload, UNFOLDED_HERE_BYTES)
        except BudgetExceeded:
            pass
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, decompress, header.compression, payload, UNFOLDED_BYTES_MAX)

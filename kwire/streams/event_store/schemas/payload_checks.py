"""Checks events against the schemas of their topic, for every API, without blocking the event loop.

Small payloads are checked on the event loop. The check of many payloads yields to the event loop at intervals. If the
check of a payload may take longer than a few milliseconds, it runs in a worker process. The reason may be that the
payload is large, that its schema is slow, or that describing a violation takes long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kwire.broker.partition import WAIT_MS_MAX
from kwire.errors import (
    ErrorCode,
    InvalidEvent,
    KafkaError,
    SchemaViolation,
    StreamError,
    TopicNotFound,
    UndescribedViolation,
)
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.schemas.typed_records import TypedRecord, typed_records
from kwire.streams.event_store.schemas.worker import Run, Violation, WorkerTimeout, violations
from kwire.streams.events.event import checked_json
from kwire.streams.topic_directory import StreamTopic
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import BatchHeader
from storage.errors import RecordProblem, StorageError

if TYPE_CHECKING:
    from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

# The most work for one payload on the event loop, in the units of `costs.py`. It takes at worst about three
# milliseconds.
INLINE_WORK_MAX = 128 * 1024
# Work between two yields to the event loop. It takes at worst a millisecond or two, and usually far less.
CHUNK_WORK = 128 * 1024
# Work per record in addition to the work for its payload.
RECORD_WORK = 150
# Limits of the records that are sent to the worker process in one call. A record that exceeds a limit is sent alone.
CALL_BYTES_MAX = 1024 * 1024
CALL_WORK_MAX = 50_000_000
# Time limit for checking one batch, on the event loop or in the worker process. The producer's request has timed out
# by then.
BATCH_SECONDS_MAX = WAIT_MS_MAX / 1000
# A compressed batch up to these sizes is decompressed on the event loop, a larger one in a thread.
INLINE_COMPRESSED_BYTES_MAX = 64 * 1024
INLINE_DECOMPRESSED_BYTES_MAX = 256 * 1024
# Largest decompressed batch: the same limit as for readers of events.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# The number of problems that are reported for one batch, and the length of the message of each.
PROBLEMS_MAX = 1000
PROBLEM_LENGTH_MAX = 300
# Published events that may wait for the worker process. Batches of producers are not included: the queue of the commit
# pipeline limits them.
WORKER_EVENTS_MAX = 100
# JSON of at most this many bytes cannot be nested too deep for readers.
SHALLOW_BYTES_MAX = 500

_NULL_PAYLOAD = b"null"

SchemasOf = Callable[[StreamTopic], "tuple[TopicSchemas, int]"]


class SchemaChecks:
    """Checks events and batches. `schemas_of` returns a topic's schemas and their revision, or raises a StreamError."""

    def __init__(self, schemas_of: SchemasOf, run: Run) -> None:
        self._schemas_of = schemas_of
        self._run = run
        # Work done since the last yield to the event loop.
        self._work = 0
        self._in_worker = 0
        # References that keep the tasks alive.
        self._checking: set[asyncio.Task[Sequence[RecordProblem]]] = set()

    # --- events

    def check_draft(self, topic: StreamTopic, draft: EventDraft) -> Awaitable[object] | None:
        """Raise SchemaViolation if the event is refused.

        If an awaitable is returned, the caller must await it to complete the check. Awaiting it may raise the error.
        """
        schemas, revision = self._schemas_of(topic)
        work = schemas.work(draft.type, draft.payload)
        if work > INLINE_WORK_MAX:
            return self._check_large_draft(topic, schemas, revision, draft)
        try:
            schemas.check_inline(draft.type, draft.payload, INLINE_WORK_MAX)
        except UndescribedViolation:
            return self._check_large_draft(topic, schemas, revision, draft)
        self._work += work + RECORD_WORK
        if self._work > CHUNK_WORK:
            self._work = 0
            return asyncio.sleep(0)
        return None

    async def _check_large_draft(
        self, topic: StreamTopic, schemas: "TopicSchemas", revision: int, draft: EventDraft
    ) -> None:
        if self._in_worker >= WORKER_EVENTS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many large events wait to be checked, try again")
        self._in_worker += 1
        try:
            (found,) = await self._violations(topic, schemas, revision, [(draft.type, draft.payload)])
        finally:
            self._in_worker -= 1
        if found is not None:
            raise SchemaViolation(draft.type, *found)

    async def _violations(
        self, topic: StreamTopic, schemas: "TopicSchemas", revision: int, events: Sequence[tuple[str, bytes]]
    ) -> Sequence[Violation | None]:
        """Check events in the worker process. Returns the violation of each event, or None if the event is valid."""
        try:
            found: Sequence[Violation | None] = await self._run(
                violations, (topic.topic_id.hex(), revision), schemas.value(), events
            )
        except WorkerTimeout as error:
            return [Violation("$", str(error))] * len(events)
        return found

    # --- records

    def check_batch(
        self, topic: StreamTopic, batch: memoryview, header: BatchHeader
    ) -> "Sequence[RecordProblem] | asyncio.Future[Sequence[RecordProblem]]":
        """Return the problems of the records of a producer's batch, or a future of them.

        Raises StorageError if the records are malformed, KafkaError if the server cannot check them.
        """
        payload = batch[HEADER_BYTES:]
        if not header.compression:
            body = bytes(payload)
            schemas, revision = self._schemas_for_batch(topic)
            if schemas.cost_max.work(body) + header.record_count * RECORD_WORK <= CHUNK_WORK:
                problems = _problems(schemas, body, header)
                if problems is not None:
                    return problems
            checking = self._check_in_chunks(topic, schemas, revision, body, header)
        else:
            checking = self._decompress_and_check(topic, bytes(payload), header)
        task = asyncio.get_running_loop().create_task(_bounded_check(checking))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)
        return task

    def _schemas_for_batch(self, topic: StreamTopic) -> "tuple[TopicSchemas, int]":
        try:
            return self._schemas_of(topic)
        except TopicNotFound as error:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message) from error
        except StreamError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error

    async def _decompress_and_check(
        self, topic: StreamTopic, payload: bytes, header: BatchHeader
    ) -> Sequence[RecordProblem]:
        body = await _decompressed(payload, header)
        schemas, revision = self._schemas_for_batch(topic)
        return await self._check_in_chunks(topic, schemas, revision, body, header)

    async def _check_in_chunks(
        self, topic: StreamTopic, schemas: "TopicSchemas", revision: int, body: bytes, header: BatchHeader
    ) -> Sequence[RecordProblem]:
        problems: list[RecordProblem] = []
        large = _LargeRecords()
        done = 0
        for record in typed_records(body, header):
            payload = _payload(record)
            work = schemas.work(record.type, payload)
            is_large = work > INLINE_WORK_MAX
            if not is_large:
                done += work + RECORD_WORK
                try:
                    problem = _problem(schemas, record.type, payload)
                except UndescribedViolation:
                    is_large = True
                else:
                    if problem is not None:
                        problems.append(RecordProblem(record.number, problem))
            if is_large:
                if large.is_full_with(work, payload):
                    problems += await self._problems_from_worker(topic, schemas, revision, large)
                    large = _LargeRecords()
                large.add(record, work, payload)
            if len(problems) >= PROBLEMS_MAX:
                break
            if done > CHUNK_WORK:
                done = 0
                await asyncio.sleep(0)
        problems += await self._problems_from_worker(topic, schemas, revision, large)
        return sorted(problems)[:PROBLEMS_MAX]

    async def _problems_from_worker(
        self, topic: StreamTopic, schemas: "TopicSchemas", revision: int, large: "_LargeRecords"
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
    """Records of one batch that are sent to the worker in one call."""

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


async def _bounded_check(checking: Awaitable[Sequence[RecordProblem]]) -> Sequence[RecordProblem]:
    """Await a check for at most BATCH_SECONDS_MAX, and return the problems that it found.

    If the records cannot be decoded, the result is one problem with the reason. Raises KafkaError if the server cannot
    check the records, or not in time.
    """
    try:
        async with asyncio.timeout(BATCH_SECONDS_MAX):
            return await checking
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the records could not be checked in time") from None
    except StorageError as error:
        return [RecordProblem(0, str(error)[:PROBLEM_LENGTH_MAX])]


def _problems(schemas: "TopicSchemas", body: bytes, header: BatchHeader) -> Sequence[RecordProblem] | None:
    """Return the problems of a small batch; None if describing a violation would take too long on the event loop."""
    problems: list[RecordProblem] = []
    try:
        for record in typed_records(body, header):
            problem = _problem(schemas, record.type, _payload(record))
            if problem is not None:
                problems.append(RecordProblem(record.number, problem))
    except UndescribedViolation:
        return None
    return problems


def _payload(record: TypedRecord) -> bytes:
    return _NULL_PAYLOAD if record.value is None else record.value


def _problem(schemas: "TopicSchemas", event_type: str, payload: bytes) -> str | None:
    """Return what is wrong with a payload, or None. Raises UndescribedViolation if describing it takes too long."""
    try:
        schemas.check_inline(event_type, payload, INLINE_WORK_MAX)
        if len(payload) > SHALLOW_BYTES_MAX:
            checked_json(payload)
    except UndescribedViolation:
        raise
    except (SchemaViolation, InvalidEvent) as error:
        return error.message[:PROBLEM_LENGTH_MAX]
    return None


async def _decompressed(payload: bytes, header: BatchHeader) -> bytes:
    """Return the decompressed records of a batch. Large batches are decompressed in a thread."""
    from storage.batch.compression import decompress
    from storage.errors import BudgetExceeded

    if len(payload) <= INLINE_COMPRESSED_BYTES_MAX:
        try:
            return decompress(header.compression, payload, INLINE_DECOMPRESSED_BYTES_MAX)
        except BudgetExceeded:
            pass
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, decompress, header.compression, payload, DECOMPRESSED_BYTES_MAX)

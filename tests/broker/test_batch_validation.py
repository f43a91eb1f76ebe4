"""Validation of batches: the same outcome on the loop and in the worker process, and never much work on the loop."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwire.broker import batch_validation
from kwire.broker.batch_validation import (
    LIGHT_RECORDS_MAX,
    RECOMPRESSED_ON_LOOP_BYTES_MAX,
    RECORDS_ON_LOOP_MAX,
    SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX,
    UNFOLDED_ON_LOOP_BYTES_MAX,
    WORKER_CALLS_MAX,
    TooLongForLoop,
    ValidationWorker,
    is_light,
    validate,
    validate_on_loop,
)
from kwire.config import load
from kwire.config.resources.topic import TopicSettings, settings_for
from kwire.errors import ErrorCode, KafkaError
from storage.batch.format import GZIP, LZ4, NONE, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records, set_max_timestamp
from storage.errors import BatchTooLarge, InvalidBatch, InvalidTimestamp, StorageError
from tests.support.batches import NOW_MS
from tests.support.node import in_loop

COMPACTED = {"cleanup.policy": "compact"}
SLOW_ZSTD = {"compression.type": "zstd", "compression.zstd.level": "19"}
LIMITED = {"message.timestamp.before.max.ms": "1000"}
TOPICS: list[dict[str, str]] = [
    {},
    COMPACTED,
    LIMITED,
    {"compression.type": "zstd"},
    {"compression.type": "uncompressed"},
    {"max.decompressed.message.bytes": "300", **COMPACTED},
]
BATCHES = {
    "sound": [Record(b"k", b"value" * 20, NOW_MS)] * 3,
    "no key": [Record(b"k", b"v", NOW_MS), Record(None, b"v", NOW_MS)],
    "late": [Record(b"k", b"v", NOW_MS), Record(b"k", b"v", NOW_MS + 10**9)],
    "old": [Record(b"k", b"v", NOW_MS - 10**9)],
    "no time": [Record(b"k", b"v", -1)],
    "large": [Record(b"k", bytes(400), NOW_MS)],
}


def settings_of(overrides: dict[str, str]) -> TopicSettings:
    return settings_for(overrides, load())


def batch_of(records: list[Record], codec: int = NONE) -> memoryview:
    return memoryview(build_batch(records, compression=codec))


def copied(batch: memoryview) -> memoryview:
    return memoryview(bytearray(batch))


@asynccontextmanager
async def working() -> AsyncIterator[ValidationWorker]:
    worker = ValidationWorker()
    try:
        yield worker
    finally:
        await worker.close()


@in_loop
async def test_the_process_comes_to_the_same_outcome_as_the_loop() -> None:
    async with working() as worker:
        for overrides in TOPICS:
            settings = settings_of(overrides)
            for records in BATCHES.values():
                for codec in (NONE, GZIP, LZ4):
                    batch = batch_of(records, codec)
                    expected: Any
                    try:
                        stored, header = validate_on_loop(copied(batch), check_batch(batch), settings, NOW_MS)
                        expected = bytes(stored), header
                    except StorageError as error:
                        expected = error
                    own = copied(batch)
                    if not isinstance(expected, StorageError):
                        stored, header = await worker.validate(own, check_batch(batch), settings, NOW_MS)
                        assert (bytes(stored), header) == expected
                        assert not stored.readonly
                        continue
                    with pytest.raises(type(expected)) as caught:
                        await worker.validate(own, check_batch(batch), settings, NOW_MS)
                    assert str(caught.value) == str(expected)
                    if isinstance(expected, InvalidBatch):
                        assert isinstance(caught.value, InvalidBatch)
                        assert caught.value.problems == expected.problems


@pytest.mark.parametrize(
    ("overrides", "count", "value_bytes", "codec", "is_long"),
    [
        (COMPACTED, RECORDS_ON_LOOP_MAX, 0, NONE, False),
        (COMPACTED, RECORDS_ON_LOOP_MAX + 1, 0, NONE, True),
        (LIMITED, RECORDS_ON_LOOP_MAX + 1, 0, ZSTD, True),
        ({}, RECORDS_ON_LOOP_MAX + 1, 0, NONE, False),  # nothing asks for its records
        (COMPACTED, 1, 2 * UNFOLDED_ON_LOOP_BYTES_MAX, NONE, False),
        (COMPACTED, 1, 2 * UNFOLDED_ON_LOOP_BYTES_MAX, GZIP, True),
        ({"compression.type": "lz4"}, 1, RECOMPRESSED_ON_LOOP_BYTES_MAX // 2, NONE, False),
        ({"compression.type": "lz4"}, 1, RECOMPRESSED_ON_LOOP_BYTES_MAX, NONE, True),
        ({"compression.type": "zstd"}, 1, RECOMPRESSED_ON_LOOP_BYTES_MAX, GZIP, True),
        ({"compression.type": "gzip"}, 1, SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX, NONE, True),
        (
            SLOW_ZSTD,
            1,
            SLOWLY_RECOMPRESSED_ON_LOOP_BYTES_MAX,
            NONE,
            True,
        ),
        ({"compression.type": "gzip"}, 1, RECOMPRESSED_ON_LOOP_BYTES_MAX, GZIP, False),
    ],
)
def test_only_short_work_is_done_on_the_loop(
    overrides: dict[str, str], count: int, value_bytes: int, codec: int, is_long: bool
) -> None:
    settings = settings_of({"max.message.bytes": str(8 * 1024 * 1024), **overrides})
    batch = batch_of([Record(b"k", bytes(value_bytes), NOW_MS)] * count, codec)
    before, header = bytes(batch), check_batch(batch)
    if is_long:
        assert not is_light(header, settings, NOW_MS)
        with pytest.raises(TooLongForLoop):
            validate_on_loop(batch, header, settings, NOW_MS)
        assert bytes(batch) == before
    else:
        validate_on_loop(batch, header, settings, NOW_MS)


def test_what_is_light_is_never_too_long() -> None:
    for overrides in TOPICS:
        settings = settings_of(overrides)
        for count in (1, LIGHT_RECORDS_MAX, LIGHT_RECORDS_MAX + 1, RECORDS_ON_LOOP_MAX + 1):
            for codec in (NONE, ZSTD):
                batch = batch_of([Record(b"k", b"", NOW_MS)] * count, codec)
                if is_light(check_batch(batch), settings, NOW_MS):
                    validate_on_loop(batch, check_batch(batch), settings, NOW_MS)


def test_too_many_records_are_refused_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_validation, "RECORDS_VALIDATED_MAX", 10)
    batch = batch_of([Record(b"k", b"v", NOW_MS)] * 11)
    with pytest.raises(BatchTooLarge, match="11 records"):
        validate_on_loop(batch, check_batch(batch), settings_of(COMPACTED), NOW_MS)
    validate_on_loop(batch, check_batch(batch), settings_of({"flush.ms": "1000"}), NOW_MS)
    late = batch_of([Record(b"k", b"v", NOW_MS + 10**9)] * 11)
    with pytest.raises(InvalidTimestamp):
        validate_on_loop(late, check_batch(late), settings_of({}), NOW_MS)


def test_a_largest_time_that_is_wrong_is_corrected() -> None:
    batch = batch_of([Record(b"k", b"v", NOW_MS), Record(b"k", b"v", NOW_MS + 7)])
    for wrong in (-1, NOW_MS + 10**9, NOW_MS):
        header = set_max_timestamp(batch, wrong)
        stored, header = validate(batch, header, settings_of(COMPACTED), NOW_MS)
        assert check_batch(stored) == header == parse_header(stored)
        assert header.max_timestamp == NOW_MS + 7
        assert len(list(read_records(stored, 1 << 20))) == 2


@in_loop
async def test_a_process_that_dies_is_an_error_to_retry_and_the_next_batch_has_another() -> None:
    async with working() as worker:
        batch = batch_of(BATCHES["sound"])
        await worker.validate(batch, check_batch(batch), settings_of(COMPACTED), NOW_MS)
        pid = worker._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        validating = asyncio.ensure_future(worker.validate(batch, check_batch(batch), settings_of(COMPACTED), NOW_MS))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        # Killed before or after the call was on its way: either way nothing is lost and nobody waits for ever.
        try:
            await validating
        except KafkaError as error:
            assert error.code is ErrorCode.REQUEST_TIMED_OUT  # noqa: PT017
        await worker.validate(batch, check_batch(batch), settings_of(COMPACTED), NOW_MS)
        assert worker._process.pid != pid


@in_loop
async def test_few_batches_are_copied_at_a_time() -> None:
    running = highest = 0
    gate = asyncio.Event()

    async def run(function: Any, *args: Any) -> Any:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await gate.wait()
        running -= 1
        return function(*args)

    worker = ValidationWorker(run)
    batch = batch_of(BATCHES["sound"])
    validating = [
        asyncio.ensure_future(worker.validate(batch, check_batch(batch), settings_of(COMPACTED), NOW_MS))
        for _ in range(10)
    ]
    while running < WORKER_CALLS_MAX:
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*validating)
    assert highest == WORKER_CALLS_MAX
    await worker.close()

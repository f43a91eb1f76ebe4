"""Checks of records agree with reading the records, name those at fault as Kafka does, and take what is not a batch."""

import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.batch.format import GZIP, HEADER, LZ4, NO_TIMESTAMP, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records, set_max_timestamp
from storage.batch.record_batch import decompress_records as unfolded
from storage.batch.record_checks import RecordLimits, check_records
from storage.errors import PROBLEMS_NAMED_MAX, CorruptBatch, InvalidBatch, InvalidTimestamp, StorageError
from tests.storage.test_batch import BUDGET_BYTES, records, sealed
from tests.support.batches import NOW_MS, make_batch
from tests.support.effort import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
NO_LIMITS = RecordLimits()
KEYS = RecordLimits(needs_keys=True)

record_times = st.just(NO_TIMESTAMP) | st.integers(0, 300) | st.integers(0, 2**45)
timed_records = st.builds(Record, key=st.none() | st.binary(max_size=90), value=st.none(), timestamp_ms=record_times)
all_limits = st.builds(
    RecordLimits, needs_keys=st.booleans(), earliest_ms=st.integers(-10, 300), latest_ms=st.integers(200, 2**45)
)


def check(batch: memoryview, limits: RecordLimits) -> int:
    header = check_batch(batch)
    return check_records(unfolded(batch, header, BUDGET_BYTES), header, limits)


def timed(*times: int, codec: int = NONE, **changes: int) -> memoryview:
    """A batch with a record for each of these times; the header says what `changes` say."""
    batch = build_batch([Record(b"key", b"value" * 50, time, [("name", b"x")]) for time in times], compression=codec)
    return sealed(batch, **changes)


def expected(given_records: list[Record], limits: RecordLimits) -> dict[int, bool]:
    """Which records are at fault, and whether for their time: what LogValidator does with each of them."""
    found = {}
    for number, record in enumerate(given_records):
        if limits.needs_keys and record.key is None:
            found[number] = False
        elif record.timestamp_ms != NO_TIMESTAMP and not limits.earliest_ms <= record.timestamp_ms <= limits.latest_ms:
            found[number] = True
    return found


@given(st.lists(timed_records, min_size=1, max_size=20), all_limits, st.sampled_from(CODECS))
def test_the_records_that_are_named_are_those_that_violate_a_limit(
    given_records: list[Record], limits: RecordLimits, codec: int
) -> None:
    batch = memoryview(build_batch(given_records, compression=codec))
    at_fault = expected(given_records, limits)
    if not at_fault:
        assert check(batch, limits) == max(record.timestamp_ms for record in given_records)
        return
    with pytest.raises(InvalidBatch) as caught:
        check(batch, limits)
    assert [number for number, _ in caught.value.problems] == list(at_fault)
    assert isinstance(caught.value, InvalidTimestamp) is any(at_fault.values())


def test_the_words_are_those_of_kafka() -> None:
    batch = memoryview(build_batch([Record(None, b"a", 5), Record(b"k", b"b", 5), Record(None, b"c", 5)]))
    with pytest.raises(InvalidBatch) as caught:
        check(batch, KEYS)
    missing = "Compacted topic cannot accept message without key"
    assert type(caught.value) is InvalidBatch
    assert caught.value.problems == [(0, missing), (2, missing)]
    assert str(caught.value) == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=0, message='{missing}'), "
        f"RecordError(batchIndex=2, message='{missing}')]"
    )
    # One time out of range decides about the code; a record without a key is named for that alone.
    with pytest.raises(InvalidTimestamp) as caught:
        check(batch, RecordLimits(True, 6, 9))
    assert str(caught.value) == "One or more records have been rejected due to invalid timestamp"
    assert caught.value.problems == [
        (0, missing),
        (1, "Timestamp 5 of message with offset 1 is out of range. The timestamp should be within [6, 9]"),
        (2, missing),
    ]


def test_a_bounded_number_of_records_is_named_and_all_are_counted() -> None:
    count = PROBLEMS_NAMED_MAX + 5
    with pytest.raises(InvalidBatch, match=f"due to {count} record errors") as caught:
        check(memoryview(build_batch([Record(None, b"v", 0)] * count)), KEYS)
    assert len(caught.value.problems) == PROBLEMS_NAMED_MAX


def test_problems_survive_the_way_from_another_process() -> None:
    with pytest.raises(InvalidBatch) as caught:
        check(memoryview(build_batch([Record(None, b"v", 0)])), KEYS)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.problems) == (InvalidBatch, str(caught.value), caught.value.problems)


def test_a_timestamp_type_that_only_the_server_sets_is_the_fault_of_each_record() -> None:
    with pytest.raises(InvalidTimestamp) as caught:
        check_batch(sealed(make_batch(3), attributes=8))
    assert [number for number, _ in caught.value.problems] == [0, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_time_is_found_among_the_records(codec: int) -> None:
    batch = timed(NOW_MS, NOW_MS + 500, NOW_MS - 70_000, codec=codec, max_timestamp=-1)
    before = check_batch(batch)
    largest = check(batch, NO_LIMITS)
    assert largest == NOW_MS + 500
    header = set_max_timestamp(batch, largest)
    # The bytes are a batch that anybody takes, and the same one but for this.
    assert check_batch(batch) == header == replace(before, max_timestamp=NOW_MS + 500, crc=header.crc)


@pytest.mark.parametrize("codec", CODECS)
def test_each_record_is_judged_by_its_time_and_one_without_is_not(codec: int) -> None:
    batch = timed(NOW_MS, NOW_MS - 100, NOW_MS + 100, NO_TIMESTAMP, codec=codec)
    assert check(batch, RecordLimits(False, NOW_MS - 100, NOW_MS + 100)) == NOW_MS + 100
    for limits, number in (((NOW_MS - 99, NOW_MS + 1000), 1), ((0, NOW_MS + 99), 2)):
        with pytest.raises(InvalidTimestamp) as caught:
            check(batch, RecordLimits(False, *limits))
        assert [one.number for one in caught.value.problems] == [number]


def test_a_header_that_hides_a_time_does_not_help() -> None:
    batch = timed(NOW_MS, NOW_MS + 100, max_timestamp=NOW_MS)
    with pytest.raises(InvalidTimestamp):
        check(batch, RecordLimits(latest_ms=NOW_MS + 50))


def test_a_time_of_more_than_64_bits_is_refused() -> None:
    batch = timed(0, 100, base_timestamp=2**63 - 10)
    with pytest.raises(InvalidBatch, match="64 bits"):
        check(batch, NO_LIMITS._replace(latest_ms=2**64))


@settings(max_examples=examples(200))
@given(payload=st.binary(max_size=80), count=st.integers(1, 6), needs_keys=st.booleans())
def test_random_records_are_checked_or_refused(payload: bytes, count: int, needs_keys: bool) -> None:
    view = memoryview(bytearray(make_batch()[:61]) + payload)
    header = replace(parse_header(view), batch_length=len(view) - 12, record_count=count, last_offset_delta=count - 1)
    view[: HEADER.size] = header.pack()
    with suppress(StorageError):
        check_records(bytes(payload), header, RecordLimits(needs_keys, 0, NOW_MS))


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_no_batch_passes_whose_keys_are_not_those_that_readers_find(batch_records: list[Record], data: Any) -> None:
    batch = bytearray(build_batch(batch_records))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    view, header = memoryview(batch), parse_header(batch)
    body = bytes(view[61:])
    try:
        keys = [record.key for record in read_records(view, BUDGET_BYTES)]
    except CorruptBatch:
        with suppress(CorruptBatch, InvalidBatch):
            check_records(body, header, KEYS)
        return
    if None in keys:
        with pytest.raises(InvalidBatch):
            check_records(body, header, KEYS)
    else:
        check_records(body, header, KEYS)

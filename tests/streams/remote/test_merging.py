"""Merged batches have the records of the given ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.streams.remote.merging import (
    BYTES_MAX,
    RECORDS_MAX,
    GivenBatch,
    can_merge,
    first_deltas,
    merge,
    mergeable_count,
    stamp_producer,
)
from storage.batch.format import ZSTD
from storage.batch.record_batch import BatchHeader, Record, build_batch, check_batch, read_records
from tests.support.effort import examples

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.builds(
    lambda key, value, timestamp_ms, headers: Record(key, value, timestamp_ms, headers),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=300),
    st.integers(0, 2**45),
    HEADERS,
)


def given_batch(records: list[Record], compression: int = 0) -> GivenBatch:
    batch = memoryview(build_batch(records, compression=compression))
    return GivenBatch(batch, check_batch(batch))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=20), min_size=1, max_size=4))
def test_records_keep_their_contents_order_and_times(batches: list[list[Record]]) -> None:
    merged = merge([given_batch(records) for records in batches])
    stamp_producer(merged, 5, 6, 7)
    header = check_batch(merged)
    expected = [record for records in batches for record in records]
    assert [one._replace(offset=0) for one in read_records(merged, 1 << 24)] == expected
    assert [one.offset for one in read_records(merged, 1 << 24)] == list(range(len(expected)))
    assert header.max_timestamp == max(one.timestamp_ms for one in expected)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)


def headers(*counts: int, size_bytes: int = 100) -> list[BatchHeader]:
    header = given_batch([Record(None, b"x", 0)]).header
    return [
        BatchHeader(
            **{name: getattr(header, name) for name in header.__struct_fields__}
            | {"record_count": count, "batch_length": size_bytes}
        )
        for count in counts
    ]


def test_only_batches_within_the_bounds_are_merged() -> None:
    assert mergeable_count(headers(1), BYTES_MAX) == 1
    assert mergeable_count(headers(RECORDS_MAX * 2, 1), BYTES_MAX) == 1
    assert mergeable_count(headers(1, RECORDS_MAX - 2, 1, 1), BYTES_MAX) == 3
    assert mergeable_count(headers(1, 1, 1, size_bytes=BYTES_MAX // 2 - 100), BYTES_MAX) == 2
    assert mergeable_count(headers(1, 1, 1), 300) == 2
    compressed = given_batch([Record(None, b"x", 0)], ZSTD).header
    assert not can_merge(compressed)
    assert mergeable_count([compressed, *headers(1)], BYTES_MAX) == 1
    assert mergeable_count([*headers(1, 1), compressed], BYTES_MAX) == 2


def test_the_offsets_of_the_first_records() -> None:
    assert first_deltas(headers(3, 1, 5)) == [0, 3, 4]

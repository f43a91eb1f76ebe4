"""Compaction: which records stay, what becomes of their batches, and that nothing changes when it cannot be done."""

import errno
import os
from pathlib import Path

import pytest
from crc32c import crc32c

from storage.batch.format import ABORT, DELETE_HORIZON_BIT, GZIP, LOG_APPEND_TIME, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, is_intact, parse_header
from storage.compaction.cleaned_segment import remove_new_files
from storage.compaction.compaction import CompactionResult, compact
from storage.errors import DamagedLog, DiskFailure
from storage.log.segment_replacement import new_index_path, new_log_path
from storage.segment.sealed_scan import SealedSegment
from storage.segment.segment import segment_name
from tests.support.batches import NOW_MS
from tests.support.compactable import DAY_MS, CompactableFolder
from tests.support.faulty_files import FaultyFiles


@pytest.fixture
def folder(tmp_path: Path) -> CompactableFolder:
    return CompactableFolder(tmp_path)


def test_only_the_last_record_of_each_key_stays_at_its_offset(folder: CompactableFolder) -> None:
    for key, value in (("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "5")):
        folder.put(key, value)
    folder.roll()
    result = folder.compact()
    assert folder.values() == [(2, "a", "3"), (3, "c", "4"), (4, "b", "5")]
    assert result.clean_upto == 5
    assert (result.record_count, result.kept_record_count, result.key_count) == (5, 3, 3)


def test_a_later_round_cleans_what_an_earlier_one_kept(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.put("b", "1")
    folder.roll()
    folder.compact()
    folder.put("a", "2")
    folder.roll()
    folder.compact()
    assert folder.values() == [(1, "b", "1"), (2, "a", "2")]
    assert folder.clean_upto == 3


def test_small_neighbours_become_one_segment(folder: CompactableFolder) -> None:
    for number in range(10):
        folder.put(f"key-{number}", "v")
        folder.roll()
    folder.compact()
    assert [segment[:2] for segment in folder.segments] == [(0, 10)]
    assert folder.names() == {f"{0:020d}.log", f"{0:020d}.index"}


def test_segments_are_joined_up_to_their_size_only(tmp_path: Path) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=1000)
    for number in range(20):
        folder.put(f"key-{number}", "v" * 200)
    folder.roll()
    folder.compact()
    assert len(folder.segments) > 3
    assert all(segment.size_bytes <= 1000 for segment in folder.segments)


def test_segments_whose_offsets_are_too_far_apart_are_not_joined(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.roll()
    folder.next_offset = folder._base_offset = 2**31 + 10
    folder.put("b", "1")
    folder.roll()
    folder.segments[0] = SealedSegment(0, 1, folder.segments[0].size_bytes)
    result = folder.compact()
    assert [group.added.base_offset for group in result.groups] == [0, 2**31 + 10]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_loses_records_keeps_its_frame_and_codec(folder: CompactableFolder, codec: int) -> None:
    records = [Record(b"k%d" % (n % 7), b"value %d" % n, NOW_MS + n, [("h", b"x")]) for n in range(20)]
    before = folder.add(records, producer_id=9, compression=codec)
    folder.put("k6", "last")
    folder.roll()
    folder.compact()
    after = folder.headers()[0]
    kept = ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "base_timestamp")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (after.compression, after.partition_leader_epoch, after.record_count) == (codec, 3, 6)
    assert after.max_timestamp == NOW_MS + 19
    assert [record.offset for record in folder.records()] == [14, 15, 16, 17, 18, 19, 20]
    assert folder.records()[0] == Record(b"k0", b"value 14", NOW_MS + 14, [("h", b"x")], 14)
    assert all(is_intact(memoryview(batch)) for batch in folder.batches())


def test_the_largest_timestamp_is_that_of_what_stays(folder: CompactableFolder) -> None:
    folder.add([Record(b"a", b"1", NOW_MS + 500), Record(b"b", b"1", NOW_MS)])
    folder.put("a", "2")
    folder.roll()
    result = folder.compact()
    assert folder.headers()[0].max_timestamp == NOW_MS
    assert result.groups[0].added.max_timestamp == NOW_MS


def test_a_batch_that_the_broker_stamped_keeps_its_time(folder: CompactableFolder) -> None:
    folder.add([Record(b"a", b"1", NOW_MS + 500), Record(b"b", b"1", NOW_MS)], timestamp_type=LOG_APPEND_TIME)
    folder.put("a", "2")
    folder.roll()
    folder.compact()
    assert [record.timestamp_ms for record in folder.records()] == [NOW_MS + 500, NOW_MS]


def test_a_batch_whose_records_all_stay_is_copied_as_it_is(folder: CompactableFolder) -> None:
    folder.add([Record(b"a", b"1"), Record(b"b", b"1")], compression=GZIP)
    folder.roll()
    before = folder.batches()
    folder.compact()
    assert folder.batches() == before


def test_keys_of_any_length_are_told_apart(folder: CompactableFolder) -> None:
    keys = [b"", b"\0", b"\0\0", *(b"k" * length for length in (1, 15, 16, 47, 48, 49, 63, 64, 200, 20_000))]
    for value in (b"old", b"new"):
        folder.add([Record(key, value) for key in keys])
    folder.roll()
    folder.compact()
    assert [(record.key, record.value) for record in folder.records()] == [(key, b"new") for key in keys]


def test_records_without_a_key_go_and_are_counted(folder: CompactableFolder) -> None:
    folder.put(None, "lost")
    folder.put("a", "1")
    folder.roll()
    assert folder.compact().keyless_count == 1
    assert folder.values() == [(1, "a", "1")]


# --- tombstones


def test_a_tombstone_outlives_its_key_for_a_while(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.put("a", None)
    folder.put("b", "1")
    folder.roll()
    folder.compact()
    assert folder.values() == [(1, "a", None), (2, "b", "1")]
    header = folder.headers()[0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert [record.timestamp_ms for record in folder.records()] == [NOW_MS, NOW_MS]
    for later_ms, offsets in ((DAY_MS - 1, [1, 2, 3]), (DAY_MS, [2, 3, 4])):
        folder.put(f"x{later_ms}", "makes it dirty")
        folder.roll()
        folder.compact(now_ms=NOW_MS + later_ms)
        assert [offset for offset, _, _ in folder.values()][:3] == offsets
    assert folder.headers()[0].base_offset == 2


def test_the_moment_of_deletion_is_set_once(folder: CompactableFolder) -> None:
    folder.add([Record(b"a", None, NOW_MS + 7), Record(b"b", b"1", NOW_MS + 3)], compression=LZ4)
    folder.roll()
    folder.compact()
    folder.put("b", "2")
    folder.roll()
    folder.compact(now_ms=NOW_MS + 1000)
    header = folder.headers()[0]
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert header.max_timestamp == NOW_MS + 7
    assert folder.records()[0].timestamp_ms == NOW_MS + 7


def test_a_tombstone_that_is_overwritten_goes_at_once(folder: CompactableFolder) -> None:
    folder.put("a", None)
    folder.put("a", "2")
    folder.roll()
    folder.compact()
    assert folder.values() == [(1, "a", "2")]


# --- producers


def test_the_last_batch_of_a_known_producer_stays_empty(folder: CompactableFolder) -> None:
    folder.add([Record(b"a", b"1"), Record(b"b", b"1")], producer_id=5)
    folder.add([Record(b"a", b"2"), Record(b"b", b"2")], producer_id=5, compression=ZSTD)
    folder.add([Record(b"a", b"3"), Record(b"b", b"3")])
    folder.roll()
    folder.compact()
    first, second = folder.headers()
    assert (first.base_offset, first.last_offset, first.record_count, first.compression) == (2, 3, 0, NONE)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (5, 0, 2)
    assert first.max_timestamp == -1
    assert second.record_count == 2
    folder.put("c", "1")
    folder.roll()
    folder.compact(producers=b"")
    assert [header.base_offset for header in folder.headers()] == [4, 6], "the producer is forgotten, so it goes"


def test_a_segment_whose_last_batch_goes_ends_with_its_frame(tmp_path: Path) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=300)
    for value in range(6):
        folder.put("a", f"{value}" * 100)
    folder.put("b", "1")
    folder.roll()
    folder.compact(segment_bytes=1)
    assert folder.values() == [(5, "a", "5" * 100), (6, "b", "1")]
    assert [header.record_count for header in folder.headers()].count(0) == len(folder.segments) - 1
    folder.put("c", "1")
    folder.roll()
    folder.compact(segment_bytes=10_000)
    assert len(folder.segments) == 1
    assert all(header.record_count for header in folder.headers()), "frames inside the joined segment are not needed"


# --- transactions


def test_records_of_an_aborted_transaction_go_and_count_for_no_key(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.put("a", "aborted", producer_id=1, is_transactional=True)
    folder.put("b", "committed", producer_id=2, is_transactional=True)
    abort = folder.mark(1, ABORT)
    commit = folder.mark(2)
    folder.put("c", "1")
    folder.roll()
    folder.compact(producers=b"")
    assert folder.values() == [(0, "a", "1"), (2, "b", "committed"), (5, "c", "1")]
    assert folder.marker_offsets() == [abort, commit]


def test_a_producer_that_aborted_once_keeps_what_it_commits_later(folder: CompactableFolder) -> None:
    folder.put("a", "1", producer_id=1, is_transactional=True)
    folder.mark(1)
    folder.put("a", "2", producer_id=1, is_transactional=True)
    folder.mark(1, ABORT)
    folder.put("b", "3", producer_id=1, is_transactional=True)
    folder.mark(1)
    folder.roll()
    folder.compact(producers=b"")
    assert folder.values() == [(0, "a", "1"), (4, "b", "3")]


def test_a_marker_goes_when_nothing_of_its_transaction_is_left_and_its_time_has_come(folder: CompactableFolder) -> None:
    folder.put("a", "1", producer_id=1, is_transactional=True)
    marker = folder.mark(1)
    folder.put("a", "2")
    folder.roll()
    seen = []
    for day in range(4):
        folder.compact(producers=b"", now_ms=NOW_MS + day * DAY_MS)
        seen.append(marker in folder.marker_offsets())
        folder.put(f"day {day}", "1")
        folder.roll()
    # The first round takes the data, the second finds the marker alone and sets its time, the third takes it.
    assert seen == [True, True, False, False]


def test_nothing_from_the_first_open_transaction_on_is_touched(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.put("a", "2")
    open_from = folder.put("b", "open", producer_id=1, is_transactional=True)
    folder.put("a", "3")
    folder.put("a", "4")
    folder.roll()
    result = folder.compact()
    assert result.clean_upto == open_from
    assert folder.values() == [(1, "a", "2"), (2, "b", "open"), (3, "a", "3"), (4, "a", "4")]
    folder.mark(1)
    folder.roll()
    folder.compact()
    assert folder.values() == [(2, "b", "open"), (4, "a", "4")]
    assert folder.clean_upto == 6


def test_a_log_that_begins_with_an_open_transaction_is_left_alone(folder: CompactableFolder) -> None:
    folder.put("a", "1", producer_id=1, is_transactional=True)
    folder.put("a", "2")
    folder.roll()
    before = folder.names()
    result = compact(folder.job(), None, folder.files)
    assert (result.groups, result.clean_upto) == ([], 0)
    assert folder.names() == before


def test_nothing_from_the_given_offset_on_is_touched(folder: CompactableFolder) -> None:
    for value in "1234":
        folder.put("a", value)
    folder.roll()
    result = folder.compact(uncleanable_offset=2)
    assert result.clean_upto == 2
    assert folder.values() == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


# --- bounds


@pytest.mark.parametrize("key_memory_bytes", [1, 24 * 10, 24 * 40])
def test_when_the_memory_for_keys_is_full_the_round_ends_there(
    folder: CompactableFolder, key_memory_bytes: int
) -> None:
    for value in ("old", "new"):
        for start in range(0, 100, 5):
            folder.add([Record(b"key-%d" % number, value.encode()) for number in range(start, start + 5)])
    folder.roll()
    rounds = 0
    while folder.clean_upto < folder.next_offset:
        before = folder.clean_upto
        result = folder.compact(keys_bytes_max=key_memory_bytes)
        assert folder.clean_upto > before
        assert result.key_count <= max(key_memory_bytes // 24, 5)
        rounds += 1
    assert rounds > 5
    assert [(record.key, record.value) for record in folder.records()] == [
        (b"key-%d" % number, b"new") for number in range(100)
    ]


def test_the_work_is_paced_by_bytes_read_and_written(folder: CompactableFolder) -> None:
    folder.put("a", "1" * 1000)
    folder.roll()
    told: list[int] = []
    result = compact(folder.job(), told.append, folder.files)
    assert sum(told) == result.read_bytes + result.written_bytes
    assert result.written_bytes == folder.segments[0].size_bytes


# --- damage


def flip(folder: CompactableFolder, position: int) -> None:
    path = folder.directory / segment_name(folder.segments[0].base_offset)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x01
    path.write_bytes(data)


def test_every_flipped_bit_stops_the_compaction_and_changes_nothing(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.put("a", "2")
    folder.put("b", "3")
    folder.roll()
    size = folder.segments[0].size_bytes
    path = folder.directory / segment_name(0)
    whole = path.read_bytes()
    unnoticed = 0
    for position in range(size):
        flip(folder, position)
        spoiled = path.read_bytes()
        message = refusal_of(folder)
        if message is None:
            # The CRC covers neither base offset nor leader epoch; a base offset that still fits is not noticed.
            unnoticed += 1
            for new in (new_log_path(str(folder.directory), 0), new_index_path(str(folder.directory), 0)):
                folder.files.unlink(new)
        else:
            assert segment_name(0) in message
        assert folder.names() == {segment_name(0)}
        assert path.read_bytes() == spoiled
        path.write_bytes(whole)
    assert unnoticed <= 3 * 12


def refusal_of(folder: CompactableFolder) -> str | None:
    try:
        compact(folder.job(), None, folder.files)
    except DamagedLog as error:
        return str(error)
    return None


def test_a_file_that_is_shorter_than_its_log_knows_is_damage(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.roll()
    path = folder.directory / segment_name(0)
    os.truncate(path, folder.segments[0].size_bytes - 1)
    with pytest.raises(DamagedLog, match="ends inside a batch"):
        compact(folder.job(), None, folder.files)


def test_a_batch_that_a_client_wrote_badly_stays_as_it_is(folder: CompactableFolder) -> None:
    folder.put("a", "1")
    folder.add([Record(b"a", b"2"), Record(b"b", b"2")])
    start = parse_header(folder._data).size_bytes
    folder._data[start + 61] = 0x7E  # the first record says that it is longer than the batch
    folder._data[start + 17 : start + 21] = crc32c(bytes(folder._data[start + 21 :])).to_bytes(4, "big")
    folder.put("a", "3")
    folder.roll()
    before = folder.batches()
    result = folder.compact()
    assert result.unreadable_batch_count == 1
    assert folder.batches() == before[1:]


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "fsync_dir"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_disk_that_refuses_leaves_nothing_behind(tmp_path: Path, operation: str, after: int) -> None:
    files = FaultyFiles()
    folder = CompactableFolder(tmp_path, files=files)
    folder.put("a", "1")
    folder.roll()
    before = folder.names()
    if operation == "fsync_dir":
        after = 0
    files.fail_next(operation, errno.ENOSPC, after=after)
    with pytest.raises(DiskFailure):
        compact(folder.job(), None, files)
    assert folder.names() == before
    files.repair()
    assert folder.compact().clean_upto == 1


def test_when_too_many_transactions_are_to_be_followed_the_round_ends_there(
    folder: CompactableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.log.transaction_outcomes.TRANSACTIONS_MAX", 3)
    for number in range(10):
        folder.put("a", f"aborted {number}", producer_id=number, is_transactional=True)
        folder.mark(number, ABORT)
    last = folder.put("a", "1")
    folder.roll()
    rounds = 0
    while folder.clean_upto < folder.next_offset:
        before = folder.clean_upto
        folder.compact()
        assert folder.clean_upto > before
        rounds += 1
    assert rounds > 2
    assert folder.values() == [(last, "a", "1")]


def test_groups_are_right_when_only_the_first_ones_are_swapped(tmp_path: Path) -> None:
    folder = CompactableFolder(tmp_path, segment_bytes=600)
    for number in range(40):
        folder.put(f"key-{number % 7}", f"{number}" * 30)
    folder.roll()
    expected = {key: value for _, key, value in folder.values()}
    result = compact(folder.job(), None, folder.files)
    assert len(result.groups) > 2
    for group in result.groups[:2]:
        folder.swap(CompactionResult(group.clean_upto, [group]))
        assert {key: value for _, key, value in folder.values()} == expected
    for group in result.groups[2:]:
        remove_new_files(str(tmp_path), group.added.base_offset, folder.files)
    assert folder.clean_upto == result.groups[1].removed[-1].next_offset
    folder.compact()
    assert len(folder.values()) == len(expected)
    assert {key: value for _, key, value in folder.values()} == expected

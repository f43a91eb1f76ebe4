"""The list of aborted transactions of a segment: when it is on file, what is done when it does not fit."""

from pathlib import Path
from random import Random

import pytest

from storage.batch.record_batch import parse_header
from storage.compaction.compaction import CompactionJob, compact
from storage.log.log import Log
from storage.log.producers import ProducerStates
from storage.log.settings import LogSettings
from storage.log.transactions import AbortedTransaction
from storage.recovery.crash_recovery import open_log
from storage.recovery.verify import Finding, Kind, verify_segment
from storage.recovery.verify_folder import plan_folder
from storage.segment.sealed_scan import SealedSegment
from storage.segment.txn_index import decode_file, encode_file, find_aborted
from tests.support.batches import BOOT_ID, NOW_MS, UnsyncedFiles, append, make_log, read_all, run_now
from tests.support.transactional import TransactionalProducer, committed_values, write_history

SMALL = LogSettings(segment_bytes=600, index_interval_bytes=128)


def reopened(directory: Path, *, boot_id: str = BOOT_ID) -> Log:
    return open_log(str(directory), UnsyncedFiles(), run_now, SMALL, boot_id)


# --- files of aborted transactions


def closed_with_aborts(directory: Path) -> list[AbortedTransaction]:
    """Several closed segments, some with ABORT markers; the log is closed. Returns what was aborted."""
    log = make_log(directory, settings=SMALL)
    write_history(log)
    aborted = log.aborted_between(0, log.log_end_offset)
    log.close()
    return aborted


def test_only_closed_segments_with_abort_markers_have_a_file(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    write_history(log)
    log.roll(NOW_MS)
    for _ in range(20):
        append(log)
    with_aborts = {segment.base_offset for segment in log.segments() if segment.has_aborted}
    assert with_aborts
    assert len(with_aborts) < log.segment_count
    assert {int(path.name[:20]) for path in tmp_path.glob("*.txnindex")} == with_aborts
    log.advance_log_start_offset(log.log_end_offset - 1)
    for segment in log.drop_segments():
        segment.delete_files()
    assert not list(tmp_path.glob("*.txnindex"))


def test_files_are_read_only_when_somebody_asks_where_they_lie(tmp_path: Path) -> None:
    aborted = closed_with_aborts(tmp_path)
    log = reopened(tmp_path)
    closed = [segment for segment in log.segments() if segment.is_sealed and segment.has_aborted]
    assert len(closed) > 2
    assert all(segment.aborted is None for segment in closed)
    assert log.aborted_between(0, 5) == [one for one in aborted if one.first_offset < 5]
    log.release()
    assert log.aborted_between(0, log.log_end_offset) == aborted


def test_a_search_stops_where_everything_before_has_ended(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    producer = TransactionalProducer(1)
    for _ in range(30):
        producer.write(log, bytes(100))
        producer.abort(log)
    log.close()
    log = reopened(tmp_path)
    assert len(log.aborted_between(0, 1)) == 1
    assert sum(segment.aborted is not None for segment in log.segments()) <= 3


@pytest.mark.parametrize("damage", ["gone", "changed", "empty", "another segment's"])
def test_a_file_that_does_not_fit_is_made_anew_from_the_batches(tmp_path: Path, damage: str) -> None:
    aborted = closed_with_aborts(tmp_path)
    paths = sorted(tmp_path.glob("*.txnindex"))
    log = reopened(tmp_path)
    for path, other in zip(paths, [*paths[1:], paths[0]], strict=True):
        data = bytearray(path.read_bytes())
        if damage == "gone":
            path.unlink()
        elif damage == "changed":
            data[-1] ^= 1
            path.write_bytes(data)
        elif damage == "empty":
            path.write_bytes(b"")
        else:
            path.write_bytes(other.read_bytes())
        log.release()
        assert log.aborted_between(0, log.log_end_offset) == aborted


def test_the_batches_are_asked_when_a_segment_has_lost_its_seal_and_its_file(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    producer = TransactionalProducer(1)
    producer.write(log)
    producer.abort(log)
    log.roll(NOW_MS)
    append(log)
    expected = log.aborted_between(0, 3)
    assert expected == [AbortedTransaction(1, 0, 1)]
    log.close(is_clean=False)
    for path in (*tmp_path.glob("0*0.index"), *tmp_path.glob("0*0.txnindex")):
        path.unlink()
    found = reopened(tmp_path, boot_id="another")
    assert found.aborted_between(0, 3) == expected
    found.close()
    assert reopened(tmp_path).aborted_between(0, 3) == expected


@pytest.mark.parametrize("seed", range(10))
def test_the_batches_tell_the_same_as_the_entries(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    log = make_log(tmp_path, settings=SMALL)
    producers = [TransactionalProducer(number) for number in range(4)]
    for _ in range(80):
        producer = chance.choice(producers)
        if chance.random() < 0.4:
            producer.end(log, is_commit=chance.random() < 0.4)
        else:
            producer.write(log, bytes(chance.randint(0, 100)), is_transactional=True)
    segments = list(log.segments())
    for at, segment in enumerate(segments):
        found = [entry[:3] for entry in find_aborted(segments[: at + 1])]
        assert found == [entry[:3] for entry in segment.aborted or ()]


# --- verification


def findings(directory: Path, limit_bytes: int = 1 << 20) -> list[Finding]:
    plan = plan_folder(str(directory), BOOT_ID)
    found = list(plan.findings)
    for job in plan.jobs:
        report = None
        while report is None or not report.is_done:
            report = verify_segment(job, report, limit_bytes)
        found += report.findings
    return [one for one in found if not one.is_sound]


@pytest.mark.parametrize("limit_bytes", [1, 300, 1 << 20])
def test_a_log_with_transactions_is_sound(tmp_path: Path, limit_bytes: int) -> None:
    closed_with_aborts(tmp_path)
    assert findings(tmp_path, limit_bytes) == []


def test_a_file_that_does_not_fit_is_found(tmp_path: Path) -> None:
    closed_with_aborts(tmp_path)
    path = min(tmp_path.glob("*.txnindex"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (found,) = findings(tmp_path)
    assert (found.kind, found.path) == (Kind.INDEX, str(path))


@pytest.mark.parametrize("limit_bytes", [1, 1 << 20])
def test_an_entry_without_its_marker_is_found(tmp_path: Path, limit_bytes: int) -> None:
    closed_with_aborts(tmp_path)
    path = min(tmp_path.glob("*.txnindex"))
    decoded = decode_file(path.read_bytes())
    assert decoded is not None
    size_bytes, entries = decoded
    wrong = entries[0]._replace(last_offset=entries[0].last_offset - 1)
    stranger = entries[0]._replace(producer_id=77)
    for changed in (wrong, stranger):
        path.write_bytes(encode_file([changed, *entries[1:]], size_bytes))
        found = findings(tmp_path, limit_bytes)
        assert [(one.kind, one.offset) for one in found] == [(Kind.INDEX, changed.last_offset)]


# --- compaction


def test_an_entry_goes_before_its_marker_and_with_the_records(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    producer = TransactionalProducer(1)
    producer.write(log, b"aborted", key=b"a")
    marker = producer.abort(log)
    producer.write(log, b"committed", key=b"a")
    producer.commit(log)
    log.roll(NOW_MS)
    append(log)
    log.flush()
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 3):
        sealed = [segment for segment in log.segments() if segment.is_sealed]
        job = CompactionJob(
            directory=log.directory,
            segments=tuple(SealedSegment(one.base_offset, one.next_offset, one.size_bytes) for one in sealed),
            clean_upto=0,
            uncleanable_offset=sealed[-1].next_offset,
            producers=ProducerStates().encode(),
            now_ms=now_ms,
            delete_retention_ms=0,
            keys_bytes_max=1 << 20,
            segment_bytes=600,
            index_interval_bytes=128,
        )
        for group in compact(job).groups:
            log.replace_segments(sealed, [group.added], group.clean_upto)
        assert log.aborted_between(0, log.log_end_offset) == []
        assert not list(tmp_path.glob("*.txnindex*"))
        assert committed_values(log)[0] == (2, b"committed")
    control = [parse_header(batch).base_offset for batch in read_all(log) if parse_header(batch).is_control]
    assert marker not in control

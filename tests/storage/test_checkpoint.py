"""The checkpoint: it comes back as it was, or not at all."""

import struct
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from storage.disk.files import Files
from storage.recovery.checkpoint import Checkpoint, CheckpointFile, decode_checkpoint
from tests.support.faulty_files import FaultyFiles
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

longs = st.integers(-(2**63), 2**63 - 1)
checkpoints = st.builds(
    Checkpoint,
    boot_id=st.text("0123456789abcdef-", max_size=36),
    is_clean=st.booleans(),
    log_start_offset=longs,
    offset=longs,
    segment_base=longs,
    position=longs,
    scan_from=longs,
    max_timestamp=longs,
    first_timestamp=longs,
    created_ms=longs,
    epochs=st.lists(st.tuples(st.integers(0, 2**31 - 1), longs), max_size=4).map(tuple),
    producers=st.binary(max_size=60),
    clean_upto=longs,
    aborted=st.binary(max_size=60),
)


@given(checkpoints)
def test_it_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(checkpoint.encode()) == checkpoint


@given(checkpoints, st.data())
def test_changed_bytes_are_no_checkpoint(checkpoint: Checkpoint, data: st.DataObject) -> None:
    encoded = bytearray(checkpoint.encode())
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    assert decode_checkpoint(bytes(encoded)) is None
    assert decode_checkpoint(checkpoint.encode()[:position]) is None


def test_the_newest_stays_and_a_retired_log_writes_nothing(tmp_path: Path) -> None:
    file = CheckpointFile(str(tmp_path), Files())
    assert file.read() is None
    old, new = file.take_number(), file.take_number()
    checkpoint = Checkpoint("", False, 0, 1, 0, 0, 0, 0, 0, 0, (), b"")
    file.write(new, checkpoint, sync=True)
    file.write(old, Checkpoint("", False, 0, 2, 0, 0, 0, 0, 0, 0, (), b""))
    assert file.read() == checkpoint
    file.retire()
    file.write(file.take_number(), Checkpoint("", False, 0, 3, 0, 0, 0, 0, 0, 0, (), b""))
    assert file.read() == checkpoint
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_newer_log_start_goes_with_older_facts(tmp_path: Path) -> None:
    file = CheckpointFile(str(tmp_path), Files())
    number = file.take_number()
    file.log_start_offset = 7
    file.write(number, Checkpoint("", False, 3, 9, 0, 0, 0, 0, 0, 0, (), b""))
    found = file.read()
    assert found is not None
    assert (found.log_start_offset, found.offset) == (7, 9)


def test_one_that_was_replaced_by_a_newer_one_is_made_durable_with_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    file = CheckpointFile(str(tmp_path), files)
    old, new = file.take_number(), file.take_number()
    checkpoint = Checkpoint("", False, 0, 1, 0, 0, 0, 0, 0, 0, (), b"")
    newer = Checkpoint("", False, 0, 2, 0, 0, 0, 0, 0, 0, (), b"")
    file.write(new, newer, is_unsynced=True)
    assert files.calls["fsync"] == 0
    assert file.make_durable(old, checkpoint)
    assert file.read() == newer
    syncs = files.calls["fsync"]
    assert syncs > 0
    assert file.make_durable(new, newer)
    assert files.calls["fsync"] == syncs
    file.retire()
    assert not file.make_durable(file.take_number(), checkpoint)


def test_a_checkpoint_from_before_compaction_is_read() -> None:
    facts = struct.pack(">?qqqqqqqqHII", True, 1, 2, 3, 4, 5, 6, 7, 8, 4, 1, 3)
    body = facts + b"boot" + struct.pack(">iq", 9, 10) + b"who"
    data = struct.pack(">4sHI", b"KWCP", 1, crc32c(body)) + body
    assert decode_checkpoint(data) == Checkpoint("boot", True, 1, 2, 3, 4, 5, 6, 7, 8, ((9, 10),), b"who", 0)


def test_the_newest_log_start_is_not_put_on_facts_that_end_before_it(tmp_path: Path) -> None:
    file = CheckpointFile(str(tmp_path), FaultyFiles())
    checkpoint = Checkpoint("", False, 0, 10, 0, 0, 0, 0, 0, 0, (), b"")
    file.log_start_offset = 10
    file.write(file.take_number(), checkpoint)
    assert (found := file.read()) is not None
    assert found.log_start_offset == 10
    file.log_start_offset = 11
    file.write(file.take_number(), checkpoint)
    assert file.read() == checkpoint


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_that_is_not_synced_does_not_take_the_one_before_with_it(seed: int) -> None:
    files = SimulatedFiles(SimulatedDisk())
    files.makedirs("/log")
    files.syncfs("/")
    file = CheckpointFile("/log", files)
    old = Checkpoint("", False, 0, 1, 0, 0, 0, 0, 0, 0, (), b"")
    new = Checkpoint("", False, 0, 2, 0, 0, 0, 0, 0, 0, (), b"")
    file.write(file.take_number(), old, sync=True)
    file.write(file.take_number(), new)
    after = SimulatedFiles(files.disk.after_power_cut(Random(seed)))
    assert CheckpointFile("/log", after).read() in (old, new)

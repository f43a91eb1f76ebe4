"""The checkpoint: it comes back as it was, or not at all."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.checkpoint import Checkpoint, CheckpointFile, decode_checkpoint
from storage.files import Files

longs = st.integers(-(2**63), 2**63 - 1)
checkpoints = st.builds(
    Checkpoint,
    boot_id=st.text("0123456789abcdef-", max_size=36),
    is_clean=st.booleans(),
    log_start_offset=longs,
    offset=longs,
    segment_base=longs,
    position=longs,
    walk_from=longs,
    max_timestamp=longs,
    first_timestamp=longs,
    created_ms=longs,
    epochs=st.lists(st.tuples(st.integers(0, 2**31 - 1), longs), max_size=4).map(tuple),
    producers=st.binary(max_size=60),
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

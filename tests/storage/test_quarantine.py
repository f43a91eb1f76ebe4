"""The list of ranges that cannot be read: kept whole or not believed."""

from pathlib import Path

import pytest

from storage.disk.files import Files
from storage.log.quarantine import QUARANTINE_NAME, Quarantine, add_range, read_quarantine, write_quarantine
from tests.support.faulty_files import FaultyFiles

FIRST = Quarantine(0, 100, 50, 10, 12, "the CRC does not match")
SECOND = Quarantine(40, 0, 0, 40, 45, "records are missing")


def test_a_folder_without_the_file_has_no_ranges(tmp_path: Path) -> None:
    assert read_quarantine(str(tmp_path), Files()) == ()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_quarantine(str(tmp_path), Files(), [FIRST, SECOND])
    assert read_quarantine(str(tmp_path), Files()) == (FIRST, SECOND)
    write_quarantine(str(tmp_path), Files(), [])
    assert read_quarantine(str(tmp_path), Files()) == ()


def test_the_file_is_durable_when_it_is_written(tmp_path: Path) -> None:
    files = FaultyFiles()
    write_quarantine(str(tmp_path), files, [FIRST])
    files.cut_power()
    assert read_quarantine(str(tmp_path), files) == (FIRST,)
    files.fail_next("fsync")
    with pytest.raises(OSError, match="output error"):
        write_quarantine(str(tmp_path), files, [SECOND])


def test_a_changed_file_is_not_believed(tmp_path: Path) -> None:
    write_quarantine(str(tmp_path), Files(), [FIRST, SECOND])
    path = tmp_path / QUARANTINE_NAME
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            assert read_quarantine(str(tmp_path), Files()) in (None, (FIRST, SECOND)), (at, bit)
    for content in (b"", b"null", b"[]", b"{}", data[:-20]):
        path.write_bytes(content)
        assert read_quarantine(str(tmp_path), Files()) is None


def test_ranges_are_kept_in_order_and_once() -> None:
    assert add_range([SECOND], FIRST) == (FIRST, SECOND)
    assert add_range([FIRST, SECOND], FIRST) == (FIRST, SECOND)
    wider = Quarantine(0, 90, 70, 9, 13, "wider")
    assert add_range([FIRST, SECOND], wider) == (wider, SECOND)
    assert add_range([wider, SECOND], FIRST) == (wider, SECOND)
    assert FIRST.end_position == 150

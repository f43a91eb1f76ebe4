"""Quarantined ranges of a log: damaged bytes that cannot be read, followed by valid batches.

The bytes stay in place, unchanged, so that they can still be repaired. The log continues after them. One small file
next to the segments stores the ranges, so that every start reports the same ranges. The file is replaced as a whole. If
the file is not valid, the log is scanned again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import astuple

from storage.disk.files import Files

QUARANTINE_NAME: Final = "quarantine"
# A log with more damaged ranges than this is opened for reading only, up to the next damaged range.
QUARANTINES_MAX: Final = 1000

_VERSION: Final = 1


class Quarantine(Struct, frozen=True, order=True):
    """One range: ``size_bytes`` bytes at ``position`` of the segment with base offset ``segment_base``.

    These bytes held the offsets from ``start_offset`` up to, but not including, ``end_offset``. A size of 0 means that
    the records are missing.
    """

    segment_base: int
    position: int
    size_bytes: int
    start_offset: int
    end_offset: int
    reason: str

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


def add_range(ranges: Iterable[Quarantine], new: Quarantine) -> tuple[Quarantine, ...]:
    """Add ``new`` to the ranges, in offset order. ``new`` replaces ranges that it covers, and is dropped if covered."""
    kept = []
    for one in ranges:
        if one.start_offset <= new.start_offset and new.end_offset <= one.end_offset:
            new = one
        elif not (new.start_offset <= one.start_offset and one.end_offset <= new.end_offset):
            kept.append(one)
    return tuple(sorted([*kept, new], key=lambda one: (one.start_offset, one.position)))


def write_quarantine(directory: str, files: Files, ranges: Iterable[Quarantine]) -> None:
    """Write the ranges of a log, durably. Raises ``OSError``."""
    rows = [list(astuple(one)) for one in ranges]
    content = {"version": _VERSION, "crc32c": _crc(rows), "ranges": rows}
    files.replace_file(os.path.join(directory, QUARANTINE_NAME), json.dumps(content).encode() + b"\n", sync=True)


def read_quarantine(directory: str, files: Files) -> tuple[Quarantine, ...] | None:
    """The ranges of a log; empty if there is no file, None if the file is not valid."""
    data = files.read_file(os.path.join(directory, QUARANTINE_NAME))
    if data is None:
        return ()
    try:
        content = json.loads(data)
        rows = content["ranges"]
        if content["version"] != _VERSION or content["crc32c"] != _crc(rows):
            return None
        return tuple(Quarantine(*row) for row in rows)
    except (ValueError, TypeError, KeyError):
        return None


def _crc(rows: list[list[int | str]]) -> int:
    return int(crc32c(json.dumps(rows).encode()))

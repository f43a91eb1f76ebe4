"""Ranges of a log that cannot be read: damaged bytes with good batches behind them.

The bytes stay where they are, untouched, for whoever may still repair them; the log goes on behind them. What is known
of a range is kept beside the segments in one small file, replaced as a whole, so that a range is found once and told
the same way after every start. A file that cannot be believed counts as no answer at all: the log is walked again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import astuple

from storage.files import Files

QUARANTINE_NAME: Final = "quarantine"
# A log with more broken places than this is no log any more: it is opened for reading up to the next one.
QUARANTINES_MAX: Final = 1000

_VERSION: Final = 1


class Quarantine(Struct, frozen=True, order=True):
    """``size_bytes`` bytes from ``position`` on in the segment of ``segment_base``, where offsets from
    ``start_offset`` up to and without ``end_offset`` were. No bytes at all: the records are missing."""

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
    """All of them in offset order; what ``new`` covers is replaced by it, what covers ``new`` stays instead."""
    kept = []
    for one in ranges:
        if one.start_offset <= new.start_offset and new.end_offset <= one.end_offset:
            new = one
        elif not (new.start_offset <= one.start_offset and one.end_offset <= new.end_offset):
            kept.append(one)
    return tuple(sorted([*kept, new], key=lambda one: (one.start_offset, one.position)))


def write_quarantine(directory: str, files: Files, ranges: Iterable[Quarantine]) -> None:
    """Durable when this returns; raises ``OSError``."""
    rows = [list(astuple(one)) for one in ranges]
    content = {"version": _VERSION, "crc32c": _crc(rows), "ranges": rows}
    files.replace_file(os.path.join(directory, QUARANTINE_NAME), json.dumps(content).encode() + b"\n", sync=True)


def read_quarantine(directory: str, files: Files) -> tuple[Quarantine, ...] | None:
    """The ranges, none when there is no file, or None when the file cannot be believed."""
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

"""The segments in a partition's folder, and whether a compaction is running there.

Both servers name a segment by its first offset, with twenty digits and `.log`. They write the replacement of a segment
to the same folder, with another suffix.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmark.processes import ChildFailed

SEGMENT = ".log"
UNFINISHED = (".new", ".cleaned", ".swap")
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Segments:
    """The size and the inode of every segment, by first offset. A replaced segment has another inode."""

    files: dict[int, tuple[int, int]]
    is_unfinished: bool

    @classmethod
    def of(cls, folder: Path) -> "Segments":
        files, is_unfinished = {}, False
        for entry in os.scandir(folder):
            is_unfinished = is_unfinished or entry.name.endswith(UNFINISHED)
            if entry.name.endswith(SEGMENT):
                with suppress(FileNotFoundError):
                    found = entry.stat()
                    files[int(entry.name.removesuffix(SEGMENT))] = (found.st_size, found.st_ino)
        return cls(files, is_unfinished)

    @property
    def active(self) -> int:
        """The first offset of the active segment, which is never compacted. Its size may include reserved space."""
        return max(self.files)

    @property
    def closed(self) -> list[int]:
        return sorted(self.files.keys() - {self.active})

    @property
    def closed_bytes(self) -> int:
        return sum(self.files[base][0] for base in self.closed)


def await_quiet(folder: Path, quiet_seconds: float, timeout_seconds: float, known: Segments | None = None) -> float:
    """Wait until the segments have not changed for `quiet_seconds`. Return the time of their last change.

    If `known` is not None, first wait until the segments differ from `known`.
    """
    started = time.perf_counter()
    last, changed_at = known or Segments.of(folder), started
    has_changed = known is None
    while (now := time.perf_counter()) - started < timeout_seconds:
        found = Segments.of(folder)
        if found.files != last.files:
            last, changed_at, has_changed = found, now, True
        elif has_changed and not found.is_unfinished and now - changed_at > quiet_seconds:
            return changed_at
        time.sleep(POLL_SECONDS)
    what = "never became quiet" if has_changed else "were not touched"
    raise ChildFailed(f"the segments in {folder.name} {what} for {timeout_seconds:.0f} s")

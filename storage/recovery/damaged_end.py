"""Quarantines the damaged end of a log by an operator's decision: the log continues above all assigned offsets."""

from __future__ import annotations

from collections.abc import Callable

from storage.disk.files import Files
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log


def has_damaged_end(directory: str, files: Files) -> bool:
    """Whether a damaged end keeps the log from taking appends. Opens the log, so no server may use it."""
    log = _opened(directory, files, None)
    log.close(is_clean=False)
    return log.damage is not None


def quarantine_damaged_end(directory: str, files: Files, offset: int) -> int:
    """Quarantine the damaged and missing offsets at the end, up to ``offset``, and close the log cleanly.

    Returns the new log end offset. No bytes are removed.
    """
    log = _opened(directory, files, offset)
    log.close()
    return log.log_end_offset


def _opened(directory: str, files: Files, resume_offset: int | None) -> Log:
    return open_log(directory, files, _run, LogSettings(), files.boot_id(), resume_offset=resume_offset)


def _run(job: Callable[[], None]) -> None:
    job()

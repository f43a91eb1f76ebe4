"""Giving up the damaged end of a log by an operator's decision: it goes on above every offset it ever gave out."""

from __future__ import annotations

from collections.abc import Callable

from storage.files import Files
from storage.log import Log
from storage.recovery import open_log
from storage.settings import LogSettings


def has_lost_end(directory: str, files: Files) -> bool:
    """Whether the log takes no records because of its end. It is opened as a start would, and nothing else uses it."""
    log = _opened(directory, files, None)
    log.close(is_clean=False)
    return log.damage is not None


def give_up_end(directory: str, files: Files, offset: int) -> int:
    """Quarantine what is damaged or missing up to ``offset`` and leave the log as a clean stop does; where it goes on.

    Bytes that are there stay where they are.
    """
    log = _opened(directory, files, offset)
    log.close()
    return log.log_end_offset


def _opened(directory: str, files: Files, resume_offset: int | None) -> Log:
    return open_log(directory, files, _run, LogSettings(), files.boot_id(), resume_offset=resume_offset)


def _run(job: Callable[[], None]) -> None:
    job()

"""Advances the log start offset. The new offset is made durable before readers see it.

So no client sees a deletion that a power cut, or a disk too full for the checkpoint, would undo.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from storage.data_directory.disk_reserve import run_with_reserve
from storage.errors import disk_errors
from storage.log.durability import DurableLog


class LogStartUpdate:
    """A change of the log start offset, in three steps.

    Create it on the log's thread, call :meth:`run` in any thread, then :meth:`finish` or :meth:`fail` on the log's
    thread. ``offset`` may be the current start. Raises :class:`OffsetOutOfRange` if ``offset`` is not in the log, and
    :class:`DiskFailure` if the content of a checkpoint cannot be read.
    """

    __slots__ = ("_log", "_write", "offset")

    def __init__(self, log: DurableLog, offset: int) -> None:
        log.check_start(offset)
        # Uses private methods of the log: the content of a checkpoint is built in one place only.
        checkpoint = replace(log._describe_end(is_clean=False), log_start_offset=offset)
        self.offset = offset
        self._log = log
        file = log._checkpoint_file
        self._write = partial(file.make_durable, file.take_number(), checkpoint)
        log.add_pending_start(offset)

    def run(self) -> bool:
        """Write the checkpoint durably. Waits for the disk and raises :class:`DiskFailure`.

        Returns False if the log is closed. Then nothing was written.
        """
        log = self._log
        with disk_errors(f"checkpoint {log.directory}"):
            return run_with_reserve(log._files, log.directory, self._write)

    def finish(self) -> None:
        """Make the new start visible to readers, after :meth:`run` has succeeded."""
        self._log.remove_pending_start(self.offset)
        if self._log.log_start_offset < self.offset <= self._log.log_end_offset:
            self._log.set_start(self.offset)

    def fail(self) -> None:
        """Keep the current start, after :meth:`run` has failed."""
        self._log.remove_pending_start(self.offset)

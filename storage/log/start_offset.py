"""Moving the log start: it is noted durably first, and only then are records below it gone for readers.

So no client learns of a deletion that a power cut, or a disk too full for the note, would undo.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from storage.disk_reserve import freeing
from storage.errors import disk_errors
from storage.log_durability import DurableLog


class StartMove:
    """A log start on its way to the disk: begun, and ended by :meth:`finish` or :meth:`fail`, on the log's thread.

    In between :meth:`run` in any other. ``offset`` may be the start that the log has. Raises
    :class:`OffsetOutOfRange` for one that cannot be the start, and :class:`DiskFailure` when the facts of a checkpoint
    cannot be read.
    """

    __slots__ = ("_log", "_write", "offset")

    def __init__(self, log: DurableLog, offset: int) -> None:
        log.check_start(offset)
        # Within the storage package: the facts of a checkpoint are gathered in one place only.
        checkpoint = replace(log._describe_end(is_clean=False), log_start_offset=offset)
        self.offset = offset
        self._log = log
        file = log._checkpoint_file
        self._write = partial(file.make_durable, file.take_number(), checkpoint)
        log.expect_start(offset)

    def run(self) -> bool:
        """Make it durable; waits for the disk and raises :class:`DiskFailure`.

        False: the log is closed, and whoever has its folder now knows the start that it had.
        """
        log = self._log
        with disk_errors(f"checkpoint {log.directory}"):
            return freeing(log._files, log.directory, self._write)

    def finish(self) -> None:
        """It is durable: let readers see it."""
        self._log.forget_expected_start(self.offset)
        if self._log.log_start_offset < self.offset <= self._log.log_end_offset:
            self._log.set_start(self.offset)

    def fail(self) -> None:
        """It is not: the log begins where it began."""
        self._log.forget_expected_start(self.offset)

"""Making a new log start durable, for those who have to know that it is before they tell anybody.

Retention need not know: a start that a power cut takes back is found again. Somebody who was told that records are
gone must not see them again.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.errors import disk_errors
from storage.log_durability import DurableLog


def begin_durable_start(log: DurableLog) -> Callable[[], bool] | None:
    """What a thread has to run so that the log start of this moment survives a power cut; None: nothing is needed.

    It waits for the disk and raises :class:`~storage.errors.DiskFailure`. False: the log is closed, and whoever has
    its folder now knows the start. Called in the log's thread.
    """
    if log.log_start_offset == 0:
        return None  # where every log starts
    # Within the storage package: the facts of a checkpoint are gathered in one place only.
    file = log._checkpoint_file
    number, checkpoint = file.take_number(), log._describe_end(is_clean=False)

    def run() -> bool:
        with disk_errors(f"checkpoint {file.directory}"):
            return file.make_durable(number, checkpoint)

    return run

"""Selects the disk lane (thread pool) for a kind of background work.

Logs receive a function that runs a job in another thread (:data:`storage.log.settings.Background`). The server passes
its disk lanes, which have separate lanes for space allocation and for file removal. Tests and tools pass a plain
function, which runs all kinds of work.
"""

from __future__ import annotations

from storage.log.settings import Background


def allocate_lane(background: Background) -> Background:
    """The lane that reserves space for segments. It is separate from seals and checkpoints, which wait for syncs."""
    lane: Background = getattr(background, "allocate", background)
    return lane


def delete_lane(background: Background) -> Background:
    """The lane that removes files and folders. It is separate from seals and checkpoints."""
    lane: Background = getattr(background, "delete", background)
    return lane

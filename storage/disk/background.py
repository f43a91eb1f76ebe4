"""Selects the disk lane (thread pool) for a kind of background work.

Logs receive a function that runs a job in another thread (:data:`storage.log.settings.Background`). The server passes
an object with separate disk lanes for space allocation and for file removal. Tests and tools pass a plain function,
which runs all kinds of work.
"""

from __future__ import annotations

from storage.log.settings import Background


def allocate_lane(background: Background) -> Background:
    """The lane that reserves space for segments. Seals and checkpoints, which wait for syncs, use another lane."""
    lane: Background = getattr(background, "allocate", background)
    return lane


def delete_lane(background: Background) -> Background:
    """The lane that removes files and folders. Seals and checkpoints use another lane."""
    lane: Background = getattr(background, "delete", background)
    return lane

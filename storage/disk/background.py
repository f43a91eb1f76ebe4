"""Which threads do the work that logs hand out: one lane for each kind of work, where there are lanes.

Logs are given a function that runs a job in some other thread (:data:`storage.settings.Background`). The server's disk
lanes are such a function, and have lanes for space that appends need soon and for removals. A plain function, as tests
and tools have it, does all kinds of work.
"""

from __future__ import annotations

from storage.settings import Background


def allocate_lane(background: Background) -> Background:
    """Where the next space of a segment is reserved: apart from seals and checkpoints, which wait for syncs."""
    lane: Background = getattr(background, "allocate", background)
    return lane


def delete_lane(background: Background) -> Background:
    """Where files and folders are removed: apart from seals and checkpoints."""
    lane: Background = getattr(background, "delete", background)
    return lane

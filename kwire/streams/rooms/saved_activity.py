"""Room activity (which rooms were used, and when) that a clean stop saves in the metadata store for the next start.

This is a separate module because the server loads the activity long before it creates the Rooms object. The activity of
many rooms is too large for one entry and one commit, so it is divided into parts, which a plan writes.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from kwire.broker.topics.startup import NODE_KEY
from kwire.metastore import Change, MetaStore, Plan

# The entry with the number of parts, and the number of the start whose activity it is. The part with number N has the
# key `rooms/activity/N`.
ACTIVITY_KEY = "rooms/activity"
# The single entry that earlier versions wrote.
WHOLE_ACTIVITY_KEY = "rooms/fetched"
PLAN_KEY = "plans/rooms-activity"
# If more rooms than this have recorded activity, a clean stop saves none of it.
SAVED_ROOMS_MAX = 10_000
# With names of 249 bytes, a part has less than 300 KB.
ROOMS_PER_PART = 1000


async def save_activity(metastore: MetaStore, used: Mapping[str, int] | None) -> None:
    """Store the time of the last use of each room, or nothing if it is not known. Raises StorageError."""
    if used is None or len(used) > SAVED_ROOMS_MAX:
        return
    rooms = iter(used.items())
    parts = list(iter(lambda: dict(islice(rooms, ROOMS_PER_PART)), {}))
    values: dict[str, Any] = {f"{ACTIVITY_KEY}/{number}": part for number, part in enumerate(parts)}
    values[ACTIVITY_KEY] = {"parts": len(parts), "start": _start_number(metastore)}
    await Plan(metastore, PLAN_KEY).commit(values)


async def load_activity(metastore: MetaStore) -> tuple[Mapping[str, int] | None, list[Change]]:
    """Return the time of the last use of each room, as a clean stop saved it, and the changes that remove the entries.

    The times are None if the last run of the server saved none. The entries are removed at the start, so that a start
    after a crash does not use them again. Raises StorageError.
    """
    await Plan(metastore, PLAN_KEY).recover()
    entry = metastore.get(ACTIVITY_KEY)
    part_count = entry.value["parts"] if entry is not None else 0
    part_keys = [WHOLE_ACTIVITY_KEY, *(f"{ACTIVITY_KEY}/{number}" for number in range(part_count))]
    parts = {key: part for key in part_keys if (part := metastore.get(key)) is not None}
    removed = [Change(key, None, part.revision) for key, part in parts.items()]
    if entry is not None:
        removed.append(Change(ACTIVITY_KEY, None, entry.revision))
        if entry.value["start"] != _start_number(metastore):
            # An earlier version of the server, which does not know these entries, ran in between.
            parts = {key: part for key, part in parts.items() if key == WHOLE_ACTIVITY_KEY}
            entry = None
    if entry is None and not parts:
        return None, removed
    return {name: used_ms for part in parts.values() for name, used_ms in part.value.items()}, removed


def _start_number(metastore: MetaStore) -> int | None:
    entry = metastore.get(NODE_KEY)
    return entry.value["starts"] if entry is not None else None

"""Room activity (which rooms were used, and when) that a clean stop saves in the metadata store for the next start.

This is a separate module because the server loads the activity long before it creates the Rooms object.
"""

from collections.abc import Mapping

from kwire.metastore import Change, MetaStore

# The key in the metadata store.
ACTIVITY_KEY = "rooms/fetched"


def load_activity(metastore: MetaStore) -> tuple[Mapping[str, int] | None, list[Change]]:
    """Return the time of the last use of each room, as a clean stop saved it, and the change that removes the entry.

    The times are None if nothing was saved. The entry is removed at the start, so that a start after a crash does not
    use it again.
    """
    entry = metastore.get(ACTIVITY_KEY)
    if entry is None:
        return None, []
    return entry.value, [Change(ACTIVITY_KEY, None, entry.revision)]

"""What a clean stop leaves for the next start: which rooms were used, and when. It is needed long before the rooms."""

from collections.abc import Mapping

from kwire.metastore import Change, MetaStore

# The metastore's key for it.
HANDOVER_KEY = "rooms/fetched"


def handed_over(metastore: MetaStore) -> tuple[Mapping[str, int] | None, list[Change]]:
    """What a clean stop has left, and the change that takes it away: a kill from now on leaves nothing."""
    entry = metastore.get(HANDOVER_KEY)
    if entry is None:
        return None, []
    return entry.value, [Change(HANDOVER_KEY, None, entry.revision)]

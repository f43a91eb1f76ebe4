"""Notes of deleted topics in the metadata store: the permission to remove folders that the catalogue does not know.

A note is written by the commit that drops the topic. It goes when every folder of the topic is gone durably, together
with the next commit that changes topics, or at the next start. While a data directory is offline, notes stay: the
directory may hold folders of the topic.
"""

from collections import deque
from collections.abc import Sequence

from kwire.metastore import Change, MetaStore
from kwire.metastore.interface import ABSENT
from storage.directories import LogDirectories
from storage.start_check import DeletedTopic

KEY_PREFIX = "deleted-topics/"
# Notes that one commit drops; the others go with later commits.
DROPPED_PER_COMMIT_MAX = 1000


class DeletionNotes:
    """Called from the event loop."""

    def __init__(self, metastore: MetaStore, store: LogDirectories) -> None:
        self._metastore = metastore
        self._store = store
        # Topics whose folders were all renamed, with what says when they are gone, oldest first.
        self._renamed: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def change(self, topic_id: bytes, name: str, partition_count: int) -> Change:
        """The note, for the commit that drops the topic."""
        return Change(_key(topic_id), {"name": name, "partitions": partition_count}, ABSENT)

    def mark_renamed(self, topic_ids: Sequence[bytes]) -> None:
        """No folder of these topics has its old name any more, but that may not be durable yet."""
        ticket = self._store.removal_ticket()
        self._renamed.extend((topic_id, ticket) for topic_id in topic_ids)

    def finished_changes(self) -> list[Change]:
        """Drop the notes whose folders are gone. Each is returned once; if the commit fails, the next start does it."""
        changes: list[Change] = []
        while self._renamed and len(changes) < DROPPED_PER_COMMIT_MAX and self._store.is_removed(self._renamed[0][1]):
            key = _key(self._renamed.popleft()[0])
            entry = self._metastore.get(key)
            if entry is not None:
                changes.append(Change(key, None, entry.revision))
        return changes

    def all(self) -> list[DeletedTopic]:
        """What earlier runs left."""
        return [
            DeletedTopic(bytes.fromhex(key.removeprefix(KEY_PREFIX)), entry.value["name"], entry.value["partitions"])
            for key, entry in self._metastore.entries(KEY_PREFIX)
        ]


def _key(topic_id: bytes) -> str:
    return KEY_PREFIX + topic_id.hex()

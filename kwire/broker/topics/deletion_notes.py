"""Deletion notes: entries for deleted topics in the metadata store. With them, the next start removes leftover folders.

The commit that deletes a topic also writes its note. Once the removal of every folder of the topic is durable, the next
commit that creates or deletes topics removes the note. While a data directory is offline, notes stay, because that
directory may contain folders of deleted topics. The notes of earlier runs are also removed in this way, after the start
of the server has removed the leftover folders.
"""

from collections import deque
from collections.abc import Sequence

from kwire.metastore import Change, MetaStore
from kwire.metastore.interface import ABSENT
from storage.data_directory.directories import LogDirectories
from storage.data_directory.start_check import DeletedTopic

KEY_PREFIX = "deleted-topics/"


class DeletionNotes:
    """The deletion notes of a node. Use it only in the event loop's thread."""

    def __init__(self, metastore: MetaStore, store: LogDirectories) -> None:
        self._metastore = metastore
        self._store = store
        # Ids of topics whose folders were all renamed, oldest first, and tickets with which `LogDirectories.is_removed`
        # returns whether the removal is durable.
        self._renamed: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def change(self, topic_id: bytes, name: str, partition_count: int) -> Change:
        """Return the change that writes the note of a topic. It belongs in the commit that deletes the topic."""
        return Change(_key(topic_id), {"name": name, "partitions": partition_count}, ABSENT)

    def mark_renamed(self, topic_ids: Sequence[bytes]) -> None:
        """Record that all folders of these topics have been renamed. The renames need not be durable yet."""
        ticket = self._store.removal_ticket()
        self._renamed.extend((topic_id, ticket) for topic_id in topic_ids)

    def finished_changes(self, count_max: int) -> list[Change]:
        """Return up to `count_max` changes that remove the notes of topics whose folders are durably removed.

        Each change is returned only once. If its commit fails, the note stays until after the next start.
        """
        changes: list[Change] = []
        while self._renamed and len(changes) < count_max and self._store.is_removed(self._renamed[0][1]):
            key = _key(self._renamed.popleft()[0])
            entry = self._metastore.get(key)
            if entry is not None:
                changes.append(Change(key, None, entry.revision))
        return changes

    def all(self) -> list[DeletedTopic]:
        """Return all notes. At the start, these are the notes of earlier runs."""
        return [
            DeletedTopic(bytes.fromhex(key.removeprefix(KEY_PREFIX)), entry.value["name"], entry.value["partitions"])
            for key, entry in self._metastore.entries(KEY_PREFIX)
        ]


def _key(topic_id: bytes) -> str:
    return KEY_PREFIX + topic_id.hex()

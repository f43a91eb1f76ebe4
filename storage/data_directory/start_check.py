"""What a start finds when it compares the partition folders of the data directories with the catalogue.

Nothing is removed because the catalogue does not mention it: a folder goes only if the catalogue holds the note that
its topic was deleted. Any other folder that is not known is reported, and the caller refuses to start. A partition that
is known to have had a folder (:mod:`storage.folder_list`) and has none is offline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from storage.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from storage.errors import disk_errors
from storage.files import Files
from storage.folder_list import FolderList
from storage.partition_metadata import decode_metadata, partition_folder
from storage.store import LogStore

_SEGMENT: Final = re.compile(r"\d{20}\.log")


class DeletedTopic(NamedTuple):
    """A note of the catalogue: a topic whose folders may be removed."""

    topic_id: bytes
    name: str
    partition_count: int


class StartReport(Struct):
    """``unknown`` are paths, the others names of folders. ``end_offsets`` are those of folders that were not listed."""

    removed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    end_offsets: dict[str, int] = field(default_factory=dict)


class StartCheck:
    """One comparison, made before any log is open. ``known`` is the catalogue: folder names and topic ids."""

    def __init__(
        self,
        stores: Sequence[LogStore],
        folder_list: FolderList,
        files: Files,
        known: Mapping[str, bytes],
        deleted: Sequence[DeletedTopic],
    ) -> None:
        self._stores = stores
        self._list = folder_list
        self._files = files
        self._known = known
        self._deleted = deleted
        self._deleted_ids = frozenset(one.topic_id for one in deleted)
        # The largest number of partitions by name: topics of one name may have been deleted several times.
        self._deleted_counts: dict[str, int] = {}
        for one in deleted:
            self._deleted_counts[one.name] = max(one.partition_count, self._deleted_counts.get(one.name, 0))
        self.report = StartReport()

    def find_unknown(self) -> StartReport:
        """Remove what the catalogue notes as deleted, and report every other folder that it does not know."""
        for store in self._stores:
            for folder in sorted(store.partition_folders - self._known.keys()):
                path = os.path.join(store.data_dir, folder)
                if not self._is_partition(path):
                    continue  # somebody else's, with a name like ours
                if self._is_deleted(store, folder):
                    self._remove(store, folder)
                else:
                    self.report.unknown.append(path)
        for one in self._deleted:
            self._remove_namesakes(one)
        return self.report

    def _is_deleted(self, store: LogStore, folder: str) -> bool:
        """Whether a note of the catalogue is about this folder.

        A power cut may have taken what was written to a new folder before its topic was deleted. One that does not say
        whose it is, and was never durable, is recognised by its name.
        """
        topic_id = self._topic_id(store, folder) or self._list.ids.get(folder)
        if topic_id is not None:
            return topic_id in self._deleted_ids
        topic, _, index = folder.rpartition("-")
        return int(index) < self._deleted_counts.get(topic, 0)

    def _remove_namesakes(self, deleted: DeletedTopic) -> None:
        """A topic of the same name exists again: what is left of the deleted one is recognised by its id."""
        for index in range(deleted.partition_count):
            folder = partition_folder(deleted.name, index)
            for store in self._stores:
                if store.path_of(folder) is not None and self._topic_id(store, folder) == deleted.topic_id:
                    self._remove(store, folder)

    def _remove(self, store: LogStore, folder: str) -> None:
        store.remove_deleted(folder)
        self.report.removed.append(folder)

    def settle(self, *, is_all_online: bool) -> StartReport:
        """Bring the list of folders up to date, and say which partitions have lost theirs."""
        listed = self._list.ids
        there = frozenset().union(*(store.partition_folders for store in self._stores))
        entries: dict[str, bytes] = {}
        fresh: list[str] = []
        for folder, topic_id in self._known.items():
            if listed.get(folder) == topic_id:
                entries[folder] = topic_id
                if folder not in there:
                    self.report.lost.append(folder)
            elif folder in there:
                store = self._holder(folder, topic_id)
                if store is not None:
                    entries[folder] = topic_id
                    self._measure(store, folder)
                    if self._list.is_complete and not self._has_segments(store, folder):
                        # Its making was cut short by a kill, so it may be in the page cache only.
                        fresh.append(folder)
        self._list.settle(entries, self.report.lost, there - entries.keys(), fresh)
        for folder in self.report.lost:
            if is_all_online:
                self._list.take_offline(folder, "its folder is missing", self._stores[0].data_dir, is_lost=True)
            else:
                self._list.set_offline(folder, "its data directory cannot be opened", "or its folder is missing")
        return self.report

    def _holder(self, folder: str, topic_id: bytes) -> LogStore | None:
        """The store with the folder of this topic; another one may have a folder of the same name."""
        having = (store for store in self._stores if store.path_of(folder) is not None)
        return next((store for store in having if self._is_of(store, folder, topic_id)), None)

    def _is_of(self, store: LogStore, folder: str, topic_id: bytes) -> bool:
        """Whether a folder that is not listed is this topic's.

        If the list is damaged, a folder that does not say whose it is counts as well, and its partition is offline.
        """
        found = self._topic_id(store, folder)
        if found is not None:
            return found == topic_id
        return not self._list.is_complete and self._is_partition(os.path.join(store.data_dir, folder))

    def _measure(self, store: LogStore, folder: str) -> None:
        path = os.path.join(store.data_dir, folder, CHECKPOINT_NAME)
        with disk_errors(f"read {path}"):
            checkpoint = decode_checkpoint(self._files.read_file(path) or b"")
        if checkpoint is not None:
            self.report.end_offsets[folder] = checkpoint.offset

    def _topic_id(self, store: LogStore, folder: str) -> bytes | None:
        return decode_metadata(store.metadata(folder))

    def _has_segments(self, store: LogStore, folder: str) -> bool:
        path = os.path.join(store.data_dir, folder)
        with disk_errors(f"look at {path}"):
            return any(map(_SEGMENT.fullmatch, self._files.listdir(path)))

    def _is_partition(self, path: str) -> bool:
        with disk_errors(f"look at {path}"):
            return is_partition(path, self._files)


def is_partition(path: str, files: Files) -> bool:
    """Whether a folder with the name of a partition holds one: its metadata, or a segment."""
    try:
        names = files.listdir(path)
    except NotADirectoryError:
        return False
    return "partition.metadata" in names or any(map(_SEGMENT.fullmatch, names))

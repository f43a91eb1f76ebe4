"""Compares the partition folders of the data directories with the catalogue when the server starts.

A folder is removed only if the catalogue records that its topic was deleted. Any other folder that is not in the
catalogue is reported, and the caller refuses to start. If a partition had a folder, according to
:mod:`storage.data_directory.folder_list`, and has none now, the partition is offline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from storage.data_directory.folder_list import FolderList
from storage.data_directory.partition_metadata import decode_metadata, partition_folder
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import disk_errors
from storage.recovery.checkpoint import CHECKPOINT_NAME, decode_checkpoint

_SEGMENT: Final = re.compile(r"\d{20}\.log")


class DeletedTopic(NamedTuple):
    """A topic that is deleted according to the catalogue. Its folders may be removed."""

    topic_id: bytes
    name: str
    partition_count: int


class StartReport(Struct):
    """The result of a check.

    ``removed`` and ``lost`` are names of folders, and ``unknown`` are paths of folders. ``end_offsets`` has, by folder
    name, the log end offset in the checkpoint of each folder that was not in the folder list.
    """

    removed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    end_offsets: dict[str, int] = field(default_factory=dict)


class StartCheck:
    """One check, made before any log is opened. ``known`` is the catalogue: topic ids by folder name."""

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
        # The largest partition count by topic name: topics with the same name may have been deleted several times.
        self._deleted_counts: dict[str, int] = {}
        for one in deleted:
            self._deleted_counts[one.name] = max(one.partition_count, self._deleted_counts.get(one.name, 0))
        self.report = StartReport()

    def find_unknown(self) -> StartReport:
        """Remove folders of deleted topics, and report every other folder that is not in the catalogue."""
        for store in self._stores:
            for folder in sorted(store.partition_folders - self._known.keys()):
                path = os.path.join(store.data_dir, folder)
                if not self._is_partition(path):
                    continue  # not a partition folder, despite its name
                if self._is_deleted(store, folder):
                    self._remove(store, folder)
                else:
                    self.report.unknown.append(path)
        for one in self._deleted:
            self._remove_namesakes(one)
        return self.report

    def _is_deleted(self, store: LogStore, folder: str) -> bool:
        """Whether this folder belongs to a deleted topic, according to its topic id.

        A power cut may have lost the topic id of a folder that was never durable. Such a folder is recognised by its
        name: it belongs to a deleted topic if a deleted topic had a partition of that name.
        """
        topic_id = self._topic_id(store, folder) or self._list.ids.get(folder)
        if topic_id is not None:
            return topic_id in self._deleted_ids
        topic, _, index = folder.rpartition("-")
        return int(index) < self._deleted_counts.get(topic, 0)

    def _remove_namesakes(self, deleted: DeletedTopic) -> None:
        """Remove folders of a deleted topic whose name is in use again. They are recognised by the topic id."""
        for index in range(deleted.partition_count):
            folder = partition_folder(deleted.name, index)
            for store in self._stores:
                if store.path_of(folder) is not None and self._topic_id(store, folder) == deleted.topic_id:
                    self._remove(store, folder)

    def _remove(self, store: LogStore, folder: str) -> None:
        store.remove_deleted(folder)
        self.report.removed.append(folder)

    def update_folder_list(self, *, is_all_online: bool) -> StartReport:
        """Update the folder list, and report the partitions whose folder is missing."""
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
                        # A kill interrupted the creation of this folder, so the folder may be in the page cache only.
                        fresh.append(folder)
        self._list.finish_start(entries, self.report.lost, there - entries.keys(), fresh)
        for folder in self.report.lost:
            if is_all_online:
                self._list.take_offline(folder, "its folder is missing", self._stores[0].data_dir, is_lost=True)
            else:
                self._list.set_offline(folder, "its data directory cannot be opened", "or its folder is missing")
        return self.report

    def _holder(self, folder: str, topic_id: bytes) -> LogStore | None:
        """The store that has the folder of this topic. Another store may have a folder with the same name."""
        having = (store for store in self._stores if store.path_of(folder) is not None)
        return next((store for store in having if self._is_of(store, folder, topic_id)), None)

    def _is_of(self, store: LogStore, folder: str, topic_id: bytes) -> bool:
        """Whether a folder that is not listed belongs to this topic.

        If the folder list is damaged, a folder without a valid topic id is accepted, too. Its partition is then
        offline.
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
        with disk_errors(f"list {path}"):
            return any(map(_SEGMENT.fullmatch, self._files.listdir(path)))

    def _is_partition(self, path: str) -> bool:
        with disk_errors(f"list {path}"):
            return is_partition(path, self._files)


def is_partition(path: str, files: Files) -> bool:
    """Whether a folder with the name of a partition has ``partition.metadata`` or a segment."""
    try:
        names = files.listdir(path)
    except NotADirectoryError:
        return False
    return "partition.metadata" in names or any(map(_SEGMENT.fullmatch, names))

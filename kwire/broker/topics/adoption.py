"""Adoption rebuilds the catalogue of a stopped server from its partition folders, and replaces lost partitions.

`kwire log adopt` runs it. An adoption deletes no data: it moves folders that cannot be used to `set-aside-TIME`. It
replaces a lost partition only if the operator accepts the loss (`--accept-loss`). The folders do not record the
settings of their topic. An adopted topic therefore keeps all records (`retention.ms=-1`, `retention.bytes=-1`) until an
operator changes its settings.
"""

import os
import re
import shlex
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from kwire.broker.admin.producer_ids import KEY as PRODUCER_IDS_KEY
from kwire.broker.partition.reserved_offsets import MARK_BLOCK
from kwire.broker.topics.catalogue import KEY_PREFIX, MARKS_PREFIX, entry_value
from kwire.broker.topics.deletion_notes import KEY_PREFIX as DELETED_PREFIX
from kwire.broker.topics.internal_topics import OWN_TOPICS, internal_topic
from kwire.broker.topics.names import PARTITIONS_MAX, check_name
from kwire.broker.topics.startup import NODE_KEY, new_cluster_id, set_aside_stamp
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import Config
from kwire.errors import KafkaError
from kwire.metastore import Change, EmbeddedMetaStore, batches
from kwire.metastore.embedded import revision_of
from kwire.metastore.interface import ABSENT
from storage.data_directory.folder_list import FOLDERS_NAME, FolderList
from storage.data_directory.partition_metadata import METADATA_NAME, decode_metadata, encode_metadata
from storage.data_directory.set_aside import set_aside
from storage.data_directory.start_check import is_partition
from storage.data_directory.store import LOCK_NAME
from storage.disk.files import Files
from storage.disk.journal import Journal, salvage
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import DataDirectoryLocked, JournalDamaged
from storage.recovery.checkpoint import CHECKPOINT_NAME, Checkpoint, decode_checkpoint
from storage.recovery.damaged_end import has_damaged_end, quarantine_damaged_end
from storage.segment.index import NO_MAX_TIMESTAMP

KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
SALVAGED_SUFFIX = ".salvaged"
# The content of a new journal if nothing could be read from the damaged ones.
NO_COMMIT = b'{"revision":1,"set":{}}'
# Added to the largest leader epoch in the checkpoints. Each start of the server uses a new epoch, and a server that was
# killed may not have written its epoch to a checkpoint.
EPOCH_MARGIN = 100
# New producer ids start at the time in seconds multiplied by this, which is above every id that was ever assigned.
PRODUCER_IDS_PER_SECOND = 2**20

_PARTITION_FOLDER = re.compile(r"(.+)-(\d+)")


class AdoptionRefused(Exception):
    """The operator's request cannot be carried out. The message gives the reason.

    No folder and no catalogue entry was changed. If the journal was damaged, it was rebuilt before; `Adoption.outcome`
    reports that.
    """


class Folder(NamedTuple):
    """A partition folder on disk. `topic_id` is None if the folder's metadata file is missing or damaged."""

    data_dir: str
    name: str
    topic: str
    number: int
    topic_id: bytes | None

    @property
    def path(self) -> str:
        return os.path.join(self.data_dir, self.name)


class Outcome(Struct):
    """The report of an adoption.

    `done` has one sentence for each change that was made. `left` has one sentence for each problem that the operator
    has to decide on.
    """

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class DirectoryLocks:
    """Locks all data directories of a stopped server.

    Raises DataDirectoryLocked if another process uses one of them.
    """

    def __init__(self, data_dirs: Sequence[str], files: Files) -> None:
        self._files = files
        self._held: list[int] = []
        for data_dir in data_dirs:
            held = files.lock(os.path.join(data_dir, LOCK_NAME))
            if held is None:
                self.release()
                raise DataDirectoryLocked(f"{data_dir} is in use by another process; stop the server first")
            self._held.append(held)

    def release(self) -> None:
        while self._held:
            self._files.close(self._held.pop())


class Adoption:
    """One adoption of a node's data directories. The first directory contains the catalogue.

    The caller holds the locks of all directories (`DirectoryLocks`).
    """

    def __init__(self, data_dirs: Sequence[str], files: Files, config: Config) -> None:
        self._data_dirs = data_dirs
        self._files = files
        self._config = config
        self._lanes = DiskLanes()
        self._stamp = set_aside_stamp()
        # If the adoption fails, the outcome has the changes that were made before.
        self.outcome = Outcome()
        self._changes: list[Change] = []
        # One sentence for each change of the catalogue that is not committed yet.
        self._uncommitted: list[str] = []
        # Paths of the partitions that are damaged only at their end, by folder name.
        self._lost_ends: dict[str, str] = {}

    async def run(self, accepted: Collection[str]) -> Outcome:
        """Run the adoption. `accepted` are the folder names of partitions whose loss the operator accepts.

        Raises AdoptionRefused or StorageError.
        """
        self._metastore = self._open_metastore()
        try:
            self._topics: dict[str, dict[str, Any]] = {
                key.removeprefix(KEY_PREFIX): dict(entry.value) for key, entry in self._metastore.entries(KEY_PREFIX)
            }
            self._owned_ids = {value["id"] for value in self._topics.values()}
            self._listed = self._read_list()
            self._found = self._scan()
            self._check_accepted(accepted)
            self._adopt_folders()
            self._commit_topics()
            for name in sorted(accepted):
                self._accept_loss(name)
            self._report_lost(accepted)
            if self._changes:
                self._rebuild_node()
            # The first commit has the entries of the node. If the adoption is interrupted, the next one continues it:
            # it finds the topics that are still missing.
            for batch in batches([change] for change in self._changes):
                await self._metastore.commit(batch)
            self.outcome.done += self._uncommitted
        finally:
            self._metastore.close()
            self._lanes.close()
        return self.outcome

    # --- the catalogue and folders on disk

    def _open_metastore(self) -> EmbeddedMetaStore:
        data_dir = self._data_dirs[0]
        try:
            return EmbeddedMetaStore.open(data_dir, self._files, self._lanes)
        except JournalDamaged:
            return self._salvaged_metastore(data_dir)

    def _salvaged_metastore(self, data_dir: str) -> EmbeddedMetaStore:
        """Rebuild the journal from every commit that can be read in at least one of its two copies.

        The damaged files are copied to `set-aside-TIME` before they are replaced.
        """
        paths = [os.path.join(data_dir, name) for name in (JOURNAL_NAME, MIRROR_NAME)]
        records = {record: None for path in paths for record in salvage(self._files.read_file(path) or b"")}
        ordered = sorted(records, key=revision_of)
        target = self._keep_copies(data_dir, [path for path in paths if self._files.exists(path)])
        for path in paths:
            journal = Journal.open(path + SALVAGED_SUFFIX, self._files)
            journal.rewrite(ordered or [NO_COMMIT])
            journal.close()
            # After the first rename, one copy of the journal is intact. Opening the journal then repairs the other
            # copy.
            self._files.rename(path + SALVAGED_SUFFIX, path)
        self._files.fsync_dir(data_dir)
        self.outcome.done.append(
            f"both copies of the catalogue were damaged: they are kept in {target}, and new ones hold the "
            f"{len(ordered)} commits that could be read"
        )
        return EmbeddedMetaStore.open(data_dir, self._files, self._lanes)

    def _keep_copies(self, data_dir: str, paths: Sequence[str]) -> str:
        target = set_aside(data_dir, (), self._stamp, self._files)
        for path in paths:
            copied = os.path.join(target, os.path.basename(path))
            self._files.replace_file(copied, self._files.read_file(path) or b"", sync=True)
        return target

    def _read_list(self) -> Mapping[str, bytes]:
        """Return the topic id of each partition in the folder list, by folder name. The file itself is not changed."""
        if not self._files.exists(os.path.join(self._data_dirs[0], FOLDERS_NAME)):
            return {}
        listed = FolderList(self._data_dirs[0], self._files, lambda job: job())
        listed.start(self._files.boot_id())
        listed.close()
        return listed.ids

    def _scan(self) -> dict[str, list[Folder]]:
        found: dict[str, list[Folder]] = {}
        for data_dir in self._data_dirs:
            for name in sorted(self._files.listdir(data_dir)):
                match = _PARTITION_FOLDER.fullmatch(name)
                path = os.path.join(data_dir, name)
                if match is None or not is_partition(path, self._files):
                    continue
                topic_id = decode_metadata(self._files.read_file(os.path.join(path, METADATA_NAME)))
                found.setdefault(name, []).append(Folder(data_dir, name, match[1], int(match[2]), topic_id))
        return found

    # --- folders

    def _adopt_folders(self) -> None:
        noted = (key.removeprefix(DELETED_PREFIX) for key, _ in self._metastore.entries(DELETED_PREFIX))
        deleted = set(map(bytes.fromhex, noted))
        unknown: dict[str, list[Folder]] = {}
        for folder in (one for some in self._found.values() for one in some):
            if folder.topic_id in deleted:
                continue  # the next start removes the folder
            if not _has_valid_name(folder):
                self._set_aside(folder, "its name is not a valid partition name")
            elif folder.topic in self._topics:
                self._repair_known(folder)
            else:
                unknown.setdefault(folder.topic, []).append(folder)
        for topic, folders in sorted(unknown.items()):
            self._adopt_topic(topic, folders)

    def _repair_known(self, folder: Folder) -> None:
        """Repair the metadata of a folder whose topic is in the catalogue.

        If the topic has too few partitions in the catalogue, raise its partition count.
        """
        value = self._topics[folder.topic]
        topic_id = bytes.fromhex(value["id"])
        is_new = folder.number >= value["partitions"]
        if folder.topic_id != topic_id:
            if any(one.topic_id == topic_id for one in self._found[folder.name]):
                return  # another folder of this name has the right id
            is_nameless = folder.topic_id is None or not self._is_owned(folder.topic_id)
            if not is_nameless or (folder.topic_id is not None and self._listed.get(folder.name) != topic_id):
                if is_new:
                    self._set_aside(folder, "it belongs to another topic")
                return
            self._write_metadata(folder, topic_id)
        if is_new:
            value["partitions"] = folder.number + 1
            self._uncommitted.append(f"topic {folder.topic} has {folder.number + 1} partitions now")

    def _adopt_topic(self, topic: str, folders: Sequence[Folder]) -> None:
        ids = Counter(one.topic_id for one in folders if one.topic_id is not None and not self._is_owned(one.topic_id))
        topic_id = ids.most_common(1)[0][0] if ids else uuid.uuid4().bytes
        for folder in folders:
            if folder.topic_id == topic_id:
                continue
            if folder.topic_id is None or not ids:
                self._write_metadata(folder, topic_id)
            else:
                self._set_aside(folder, "its topic id differs from that of the topic's other folders")
        count = max((one.number for one in folders if one.topic_id in (topic_id, None) or not ids), default=0) + 1
        configs = dict(KEEP_ALL)
        if topic in OWN_TOPICS:
            usual_count, configs = internal_topic(topic, self._config)
            count = max(count, usual_count)
        self._topics[topic] = entry_value(topic_id, count, configs)
        self._owned_ids.add(topic_id.hex())
        settings = " ".join(f"{name}={value}" for name, value in configs.items())
        self._uncommitted.append(
            f"topic {topic} is in the catalogue again: {count} partitions ({len(folders)} folders), {settings}; check "
            "its partition count and settings, which the folders do not record"
        )

    def _is_owned(self, topic_id: bytes) -> bool:
        """Whether a topic of the catalogue has this id."""
        return topic_id.hex() in self._owned_ids

    def _write_metadata(self, folder: Folder, topic_id: bytes) -> None:
        self._files.replace_file(os.path.join(folder.path, METADATA_NAME), encode_metadata(topic_id), sync=True)
        self.outcome.done.append(f"{folder.path}: {METADATA_NAME} was rewritten")

    def _set_aside(self, folder: Folder, reason: str) -> None:
        target = set_aside(folder.data_dir, [folder.name], self._stamp, self._files)
        self.outcome.done.append(f"{folder.path} was moved to {target}: {reason}")

    def _commit_topics(self) -> None:
        for name, value in self._topics.items():
            entry = self._metastore.get(KEY_PREFIX + name)
            if entry is None or entry.value != value:
                self._changes.append(Change(KEY_PREFIX + name, value, entry.revision if entry else ABSENT))

    def _rebuild_node(self) -> None:
        """Write a new node entry and a new next producer id, if they are lost. No epoch or producer id is reused."""
        if self._metastore.get(NODE_KEY) is None:
            epochs = [epoch for checkpoint in self._checkpoints() for epoch, _ in checkpoint.epochs]
            value = {
                "cluster_id": self._config.cluster_id or new_cluster_id(),
                "starts": max(epochs, default=0) + EPOCH_MARGIN,
                "directory_id": uuid.uuid4().hex,
            }
            self._changes.insert(0, Change(NODE_KEY, value, ABSENT))
            self._uncommitted.append(
                f"the cluster id is {value['cluster_id']}; groups and webhooks have to be defined again"
            )
        if self._metastore.get(PRODUCER_IDS_KEY) is None:
            value = {"next": int(time.time()) * PRODUCER_IDS_PER_SECOND}
            self._changes.insert(0, Change(PRODUCER_IDS_KEY, value, ABSENT))

    def _checkpoints(self) -> Iterator[Checkpoint]:
        for folder in (one for some in self._found.values() for one in some):
            checkpoint = self._checkpoint(folder.path)
            if checkpoint is not None:
                yield checkpoint

    def _checkpoint(self, path: str) -> Checkpoint | None:
        return decode_checkpoint(self._files.read_file(os.path.join(path, CHECKPOINT_NAME)) or b"")

    # --- losses

    def _lost(self) -> list[str]:
        """Return the partitions that are in the folder list and in the catalogue, but have no folder."""
        return [
            name for name, topic_id in self._listed.items() if name not in self._found and self._id_of(name) == topic_id
        ]

    def _id_of(self, name: str) -> bytes | None:
        topic, _, index = name.rpartition("-")
        value = self._topics.get(topic)
        if value is None or not index.isdecimal() or int(index) >= value["partitions"]:
            return None
        return bytes.fromhex(value["id"])

    def _check_accepted(self, accepted: Collection[str]) -> None:
        lost = set(self._lost())
        for name in sorted(accepted):
            topic_id = self._id_of(name)
            if topic_id is None:
                raise AdoptionRefused(f"--accept-loss {name}: the catalogue has no such partition")
            whole = [one for one in self._found.get(name, ()) if one.topic_id == topic_id]
            if whole and has_damaged_end(whole[0].path, self._files):
                self._lost_ends[name] = whole[0].path
            elif whole or (name not in lost and name not in self._found):
                raise AdoptionRefused(f"--accept-loss {name}: this partition is not lost")

    def _accept_loss(self, name: str) -> None:
        """Replace a lost partition by an empty log, or quarantine the damaged end of its log.

        The log continues above every acknowledged offset.
        """
        topic, _, index = name.rpartition("-")
        value = self._topics[topic]
        entry = self._metastore.get(MARKS_PREFIX + value["id"])
        offset: int = entry.value.get(index, MARK_BLOCK) if entry is not None else MARK_BLOCK
        if name in self._lost_ends:
            end = quarantine_damaged_end(self._lost_ends[name], self._files, offset)
            self.outcome.done.append(f"{name} continues at offset {end}, above every acknowledged offset")
            return
        for folder in self._found.get(name, ()):
            checkpoint = self._checkpoint(folder.path)
            offset = max(offset, checkpoint.offset if checkpoint is not None else 0)
            self._set_aside(folder, "its loss was accepted")
        self._make_empty_log(os.path.join(self._data_dirs[0], name), bytes.fromhex(value["id"]), offset)
        self.outcome.done.append(f"{name} starts empty at offset {offset}, above every acknowledged offset")

    def _make_empty_log(self, path: str, topic_id: bytes, offset: int) -> None:
        checkpoint = Checkpoint(
            boot_id=self._files.boot_id(),
            is_clean=True,
            log_start_offset=offset,
            offset=offset,
            segment_base=offset,
            position=0,
            scan_from=offset,
            max_timestamp=NO_MAX_TIMESTAMP,
            first_timestamp=NO_MAX_TIMESTAMP,
            created_ms=0,
            epochs=(),
            producers=b"",
        )
        self._files.makedirs(path)
        # The metadata file is written last, because a folder without it is not used as a log.
        self._files.replace_file(os.path.join(path, CHECKPOINT_NAME), checkpoint.encode(), sync=True)
        self._files.replace_file(os.path.join(path, METADATA_NAME), encode_metadata(topic_id), sync=True)
        self._files.fsync_dir(os.path.dirname(path))

    def _report_lost(self, accepted: Collection[str]) -> None:
        directories = shlex.join(self._data_dirs)
        for name in self._lost():
            if name not in accepted:
                self.outcome.left.append(
                    f"the folder of {name} is lost. Restore it, or accept the loss: kwire log adopt {directories} "
                    f"--accept-loss {name}"
                )


def _has_valid_name(folder: Folder) -> bool:
    try:
        check_name(folder.topic)
    except KafkaError:
        return False
    return folder.number < PARTITIONS_MAX and folder.name == f"{folder.topic}-{folder.number}"

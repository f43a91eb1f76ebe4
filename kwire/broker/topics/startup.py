"""The checks at the start of a node. They compare the catalogue with the partition folders on disk.

The server does not start if the catalogue is damaged, or if there are partition folders that are not in the catalogue.
The operator can then rebuild the catalogue (`kwire log adopt`). Or the operator starts the server with
`kwire.start.empty`, which moves the damaged catalogue and the unknown folders to `set-aside-TIME`.
"""

import asyncio
import base64
import logging
import os
import shlex
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from kwire.broker.partition.reserved_offsets import MARK_BLOCK
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.broker.topics.full_disk import commit_with_reserve
from kwire.broker.topics.offset_marks import first_mark
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import Config
from kwire.logs.start_report import Recovery
from kwire.metastore import Change, EmbeddedMetaStore, MetaStore
from kwire.metastore.interface import ABSENT
from storage.data_directory.directories import LogDirectories
from storage.data_directory.disk_reserve import run_with_reserve as freeing_space
from storage.data_directory.set_aside import set_aside
from storage.disk.files import Files
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import JournalDamaged, StorageError, UnknownFolders

log = logging.getLogger("kwire.node")

# The key of the node's own entry: the cluster id, the number of starts, and the id of the directory with the journal.
NODE_KEY = "node"
# At most this many names are listed in one log message.
SHOWN_MAX = 20
# With these values, a hundred thousand folders are checked in half a minute, without a noticeable load.
FOLDERS_PER_CHECK = 200
CHECK_PAUSE_SECONDS = 0.05


def new_cluster_id() -> str:
    """Return a new cluster id in Kafka's form: a random UUID in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def set_aside_stamp() -> str:
    """Return the current time as the end of a folder name.

    The text ends in "Z". So such a folder cannot be mistaken for a partition folder, whose name ends in a digit.
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H.%M.%S.%fZ")


def open_metastore(
    store: LogDirectories, files: Files, lanes: DiskLanes, clock: Clock, *, starts_empty: bool
) -> EmbeddedMetaStore:
    """Open the metadata store.

    If both copies of its journal are damaged, raise JournalDamaged with the remedies in its message. With
    `starts_empty`, set the damaged files aside and open an empty store.
    """
    data_dir = store.data_dir
    try:
        # The server has to start on a full disk, because only a running server deletes old records.
        return freeing_space(files, data_dir, lambda: EmbeddedMetaStore.open(data_dir, files, lanes, clock))
    except JournalDamaged as error:
        if not starts_empty:
            raise JournalDamaged(f"the catalogue is damaged: {error}. {_remedies(store)}") from error
        names = [name for name in (JOURNAL_NAME, MIRROR_NAME) if files.exists(os.path.join(data_dir, name))]
        log.warning("%s; it was moved to %s", error, set_aside(data_dir, names, set_aside_stamp(), files))
        return EmbeddedMetaStore.open(data_dir, files, lanes, clock)


async def register(metastore: MetaStore, config: Config, extra_changes: Sequence[Change]) -> tuple[str, bytes]:
    """Record this start in the metadata store, with `extra_changes` in the same commit.

    Returns the cluster id and the id of the journal's directory. Raises ValueError if another cluster id is configured.
    """
    entry = metastore.get(NODE_KEY)
    cluster_id: str = entry.value["cluster_id"] if entry else config.cluster_id or new_cluster_id()
    if config.cluster_id not in (None, cluster_id):
        raise ValueError(f"cluster.id is {config.cluster_id}, but {config.log.data_dir} belongs to {cluster_id}")
    starts: int = entry.value["starts"] + 1 if entry else 0
    # Older versions did not store a directory id.
    directory_id: str = (entry.value.get("directory_id") if entry else None) or uuid.uuid4().hex
    value = {"cluster_id": cluster_id, "starts": starts, "directory_id": directory_id}
    await metastore.commit([Change(NODE_KEY, value, entry.revision if entry else ABSENT), *extra_changes])
    return cluster_id, bytes.fromhex(directory_id)


async def check_folders(topics: Topics, store: LogDirectories, *, starts_empty: bool) -> None:
    """Compare the partition folders with the catalogue, before any log is opened.

    If there are folders that are not in the catalogue, raise UnknownFolders with the remedies in its message. With
    `starts_empty`, set these folders aside.
    """
    known = topics.catalogue.folder_ids()
    deleted = topics.deletion_notes.all()
    check = store.check(known, deleted)
    unknown = check.report.unknown
    if unknown and not starts_empty:
        raise UnknownFolders(
            f"{len(unknown)} partition folders are not in the catalogue ({len(topics)} topics): {_shown(unknown)}. "
            f"Nothing was removed. {_remedies(store)}"
        )
    if unknown:
        targets = store.set_aside(unknown, set_aside_stamp())
        log.warning("%d folders were moved to %s: %s", len(unknown), ", ".join(targets), _shown(unknown))
    _report_list(store)
    report = check.update_folder_list(is_all_online=not store.offline_dirs)
    if report.removed:
        log.warning("removing leftover folders of deleted topics: %s", _shown(report.removed))
    for folder in report.lost[:SHOWN_MAX]:
        topics.report_offline(folder, store.offline_partitions[folder])
    if len(report.lost) > SHOWN_MAX:
        log.error("%d more partitions are offline", len(report.lost) - SHOWN_MAX)
    marks = [
        (known[folder], int(folder.rpartition("-")[2]), first_mark(end))
        for folder, end in report.end_offsets.items()
        if end > MARK_BLOCK // 2
    ]
    await commit_with_reserve(store, topics.lanes.settle, lambda: topics.marks.commit(marks))
    topics.deletion_notes.mark_renamed([one.topic_id for one in deleted])


async def recover_logs(topics: Topics, store: LogDirectories, syncs: SyncRounds) -> Recovery:
    """After a crash, open and recover every log on the unclean list, so that later no client waits for a recovery.

    Then wait until the records that a killed server left in the page cache are synced.
    """
    began = time.monotonic()
    count = 0
    recovered: set[str] = set()
    for folder in store.unclean_folders:
        name, _, index = folder.rpartition("-")
        topic = topics.get(name)
        partition = topic.partition(int(index)) if topic is not None else None
        if partition is not None:
            try:
                partition.open()
                count += 1
                recovered.add(name)
            except StorageError as error:
                # The next request for the partition tries to open the log again, and its response has the error.
                log.error("%s cannot be opened: %s", folder, error)
    await syncs.idle()
    return Recovery(not store.was_clean and topics.leader_epoch > 0, len(recovered), count, time.monotonic() - began)


async def check_metadata(topics: Topics, store: LogDirectories) -> None:
    """Check the metadata file of every partition folder once, so that damage is reported early.

    This runs in the background. A partition with a wrong metadata file is opened, as if a client used it. Opening it
    determines whether the partition is offline, and logs that.
    """
    known = list(topics.catalogue.folder_ids().items())
    for start in range(0, len(known), FOLDERS_PER_CHECK):
        for folder in await topics.lanes.survey.run(
            store.with_wrong_metadata, known[start : start + FOLDERS_PER_CHECK]
        ):
            name, _, index = folder.rpartition("-")
            topic = topics.get(name)
            partition = topic.partition(int(index)) if topic is not None else None
            if partition is not None and not partition.is_open:
                with suppress(StorageError):  # `open` has logged the error
                    partition.open()
        await asyncio.sleep(CHECK_PAUSE_SECONDS)


def _report_list(store: LogDirectories) -> None:
    listed = store.folder_list
    if listed.damaged_line_count:
        log.warning(
            "the list of partition folders (%s) had %d damaged lines and is completed from the existing folders; a "
            "folder that was lost at the same time cannot be detected",
            listed.path,
            listed.damaged_line_count,
        )
    elif listed.is_missing and store.partition_folders:
        log.warning("the list of partition folders (%s) is missing and is rebuilt from the folders", listed.path)


def _remedies(store: LogDirectories) -> str:
    directories = " ".join(map(shlex.quote, store.configured_dirs))
    return (
        "Either rebuild the catalogue from its readable entries and from the partition folders: "
        f'"kwire log adopt {directories}"; or start without the damaged catalogue and the unknown folders, which are '
        "then moved to set-aside-TIME inside the data directory: "
        '"kwire serve … --set kwire.start.empty=true"'
    )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more

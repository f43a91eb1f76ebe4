"""The start of a node on its data directories: the catalogue is opened and compared with the folders that are there.

A directory whose catalogue is damaged, or that holds partition folders which the catalogue does not know, is not
started on silently: the operator has the catalogue rebuilt (`kwire log adopt`) or starts anew with the old folders set
aside (`kwire.start.empty`).
"""

import asyncio
import base64
import logging
import os
import shlex
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from kwire.broker.full_disk import freeing
from kwire.broker.offset_marks import first_mark
from kwire.broker.partition.reserved_offsets import MARK_BLOCK
from kwire.broker.topics import Topics
from kwire.disk_lanes import DiskLanes
from kwire.metastore import EmbeddedMetaStore
from storage.directories import LogDirectories
from storage.disk_reserve import freeing as freeing_space
from storage.errors import JournalDamaged, StorageError, UnknownFolders
from storage.files import Files
from storage.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.set_aside import set_aside

log = logging.getLogger("kwire.node")

# The entry of the node itself: the cluster's id, how often it was started, the id of the journal's directory.
NODE_KEY = "node"
# Of each kind of finding, at most this many names are shown.
SHOWN_MAX = 20
# A hundred thousand folders are looked at in half a minute, without anybody noticing.
FOLDERS_PER_LOOK = 200
LOOK_PAUSE_SECONDS = 0.05


def new_cluster_id() -> str:
    """Kafka's form: a random uuid in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def set_aside_stamp() -> str:
    """A time for the name of a folder; it does not end in a digit, as the name of a partition's folder would."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H.%M.%S.%fZ")


def open_metastore(store: LogDirectories, files: Files, lanes: DiskLanes, *, starts_empty: bool) -> EmbeddedMetaStore:
    """Raises JournalDamaged, with the remedies, when both copies are damaged."""
    data_dir = store.data_dir
    try:
        # A server that did not start on a full disk could not let old records go.
        return freeing_space(files, data_dir, lambda: EmbeddedMetaStore.open(data_dir, files, lanes))
    except JournalDamaged as error:
        if not starts_empty:
            raise JournalDamaged(f"the catalogue is damaged: {error}. {_remedies(store)}") from error
        names = [name for name in (JOURNAL_NAME, MIRROR_NAME) if files.exists(os.path.join(data_dir, name))]
        log.warning("%s; it was moved to %s", error, set_aside(data_dir, names, set_aside_stamp(), files))
        return EmbeddedMetaStore.open(data_dir, files, lanes)


async def check_folders(topics: Topics, store: LogDirectories, *, starts_empty: bool) -> None:
    """Compare the folders with the catalogue, before any log is open. Raises UnknownFolders, with the remedies."""
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
    report = check.settle(is_all_online=not store.offline_dirs)
    if report.removed:
        log.warning("removing what is left of deleted topics: %s", _shown(report.removed))
    for folder in report.lost[:SHOWN_MAX]:
        topics.report_offline(folder, store.offline_partitions[folder])
    if len(report.lost) > SHOWN_MAX:
        log.error("%d more partitions are offline", len(report.lost) - SHOWN_MAX)
    marks = [
        (known[folder], int(folder.rpartition("-")[2]), first_mark(end))
        for folder, end in report.end_offsets.items()
        if end > MARK_BLOCK // 2
    ]
    await freeing(store, topics.lanes.settle, lambda: topics.marks.commit(marks))
    topics.deletion_notes.mark_renamed([one.topic_id for one in deleted])


async def check_metadata(topics: Topics, store: LogDirectories) -> None:
    """Look at the metadata of every folder once, in the background: a damaged one is reported before a client meets it.

    Whether the partition is offline is decided by opening it, as it is for a client.
    """
    known = list(topics.catalogue.folder_ids().items())
    for start in range(0, len(known), FOLDERS_PER_LOOK):
        for folder in await topics.lanes.survey.run(store.with_odd_metadata, known[start : start + FOLDERS_PER_LOOK]):
            name, _, index = folder.rpartition("-")
            topic = topics.get(name)
            partition = topic.partition(int(index)) if topic is not None else None
            if partition is not None and not partition.is_open:
                with suppress(StorageError):  # which is reported where it is raised
                    partition.open()
        await asyncio.sleep(LOOK_PAUSE_SECONDS)


def _report_list(store: LogDirectories) -> None:
    listed = store.folder_list
    if listed.damaged_line_count:
        log.warning(
            "the list of partition folders (%s) had %d damaged lines and is completed from the folders; a folder that "
            "was lost at the same time is not noticed",
            listed.path,
            listed.damaged_line_count,
        )
    elif listed.is_missing and store.partition_folders:
        log.warning("the list of partition folders (%s) is missing and made from the folders", listed.path)


def _remedies(store: LogDirectories) -> str:
    directories = " ".join(map(shlex.quote, store.configured_dirs))
    return (
        f'Either rebuild the catalogue from what can be read and from the folders: "kwire log adopt {directories}"; or '
        "start without them, keeping them in set-aside-TIME inside the data directory: "
        '"kwire serve … --set kwire.start.empty=true"'
    )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more

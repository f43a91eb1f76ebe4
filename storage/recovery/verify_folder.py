"""Plans a verification: lists the segments of a partition folder and checks the small files next to them.

No log is opened, and no file is opened for writing. A folder is read as the next start would read it: a replacement
that is committed but not finished is treated as finished.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct, field

from storage.data_directory.disk_reserve import RESERVE_NAME
from storage.data_directory.folder_list import FOLDERS_NAME
from storage.data_directory.partition_metadata import METADATA_NAME
from storage.data_directory.set_aside import SET_ASIDE_PREFIX
from storage.data_directory.store import CLEAN_NAME, DELETED_SUFFIX, LOCK_NAME, STALE_SUFFIX
from storage.data_directory.unclean_logs import WRITTEN_NAME
from storage.disk.files import Files
from storage.disk.journal import decode_journal
from storage.disk.mirrored_journal import DAMAGED_SUFFIX, JOURNAL_NAME, MIRROR_NAME
from storage.errors import DamagedLog, JournalDamaged
from storage.log.quarantine import QUARANTINE_NAME, Quarantine, read_quarantine
from storage.log.segment_replacement import NEW_SUFFIX, REPLACEMENT_NAME, read_manifest
from storage.log.syncing import SYNC_FAILED_NAME
from storage.recovery.checkpoint import CHECKPOINT_NAME, Checkpoint, decode_checkpoint
from storage.recovery.verify import Finding, Kind, SegmentJob
from storage.relocation.relocation import FUTURE_NOTE, FUTURE_SUFFIX, MOVED_NOTE, MOVING_NOTE
from storage.segment.index import decode_sealed
from storage.segment.reading import index_name, segment_name, txn_index_name
from storage.snapshot.links import SNAPSHOT_SUFFIX

_DATA_DIR_FILES: Final = {
    LOCK_NAME,
    CLEAN_NAME,
    WRITTEN_NAME,
    FOLDERS_NAME,
    JOURNAL_NAME,
    MIRROR_NAME,
    SYNC_FAILED_NAME,
    RESERVE_NAME,
}
_FOLDER_FILES: Final = {
    CHECKPOINT_NAME,
    FUTURE_NOTE,
    METADATA_NAME,
    MOVED_NOTE,
    MOVING_NOTE,
    QUARANTINE_NAME,
    REPLACEMENT_NAME,
    SYNC_FAILED_NAME,
}
_PARTITION_FOLDER: Final = re.compile(r"(.+)-(\d+)")
_SEGMENT: Final = re.compile(r"(\d{20})\.(log|index|txnindex)")


class FolderPlan(Struct):
    """The segments of one partition to verify, in order, and the findings made without reading the segments."""

    directory: str
    jobs: list[SegmentJob] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(job.size_bytes for job in self.jobs)


def partition_of(folder: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder name, or None if the name is not that of a partition folder."""
    match = _PARTITION_FOLDER.fullmatch(folder)
    return (match[1], int(match[2])) if match else None


def partition_folders(data_dir: str, files: Files) -> list[str]:
    """The names of the partition folders, sorted."""
    return sorted(name for name in files.listdir(data_dir) if partition_of(name))


def check_data_dir(data_dir: str, files: Files) -> list[Finding]:
    """Check a data directory, except partition folders: left-over folders, stray files, the catalogue."""
    findings = []
    for name in sorted(files.listdir(data_dir)):
        path = os.path.join(data_dir, name)
        if name in _DATA_DIR_FILES or partition_of(name):
            continue
        if name.endswith(DELETED_SUFFIX):
            reason = "a folder of a deleted topic; the next start removes it"
        elif name.endswith(STALE_SUFFIX):
            reason = "a folder of an earlier topic with that name; it is kept, but not served"
        elif name.endswith(FUTURE_SUFFIX):
            reason = "an unfinished copy of a partition that was moving here; the next start restarts the copy"
        elif name.endswith(SNAPSHOT_SUFFIX):
            reason = "the links of a backup; the next start removes them"
        elif name.startswith(SET_ASIDE_PREFIX):
            reason = "set aside by an operator; it is kept, but not served"
        elif name.endswith(DAMAGED_SUFFIX):
            reason = "a damaged copy of the catalogue, which was repaired; it is kept for inspection"
        else:
            reason = "not a file of kwire, or an unfinished one"
        findings.append(Finding(Kind.STRAY, path, reason, is_sound=True))
    for name in (JOURNAL_NAME, MIRROR_NAME):
        findings += _check_journal(os.path.join(data_dir, name), files)
    return findings


def _check_journal(path: str, files: Files) -> list[Finding]:
    try:
        data = files.read_file(path)
        if data is None:
            return []
        _, end = decode_journal(path, data)
    except (JournalDamaged, OSError) as error:
        return [Finding(Kind.JOURNAL, path, str(error).removeprefix(f"{path}: "))]
    if end == len(data):
        return []
    reason = "the last commit was never finished; the next start removes it"
    return [Finding(Kind.TORN, path, reason, is_sound=True, position=end, size_bytes=len(data) - end)]


def plan_folder(directory: str, boot_id: str, *, sealed_only: bool = False, files: Files | None = None) -> FolderPlan:
    """The plan for one folder. ``sealed_only``: a server may be running, so only sealed segments are read."""
    files = files or Files()
    plan = FolderPlan(directory)
    try:
        _FolderPlanner(plan, files, boot_id, sealed_only).run()
    except FileNotFoundError:
        plan.jobs.clear()  # the folder was deleted meanwhile
    except OSError as error:
        plan.findings.append(Finding(Kind.UNREADABLE, directory, str(error)))
    return plan


def plan_folders(directories: Sequence[str], boot_id: str, sealed_only: bool) -> list[FolderPlan]:
    """The plans for many folders, for a worker process."""
    return [plan_folder(directory, boot_id, sealed_only=sealed_only) for directory in directories]


def plan_scrub(data_dirs: Sequence[str], folders: Sequence[str]) -> list[FolderPlan]:
    """Plans for the sealed segments of these partitions, in any of the directories. Empty plans are left out."""
    files = Files()
    plans = []
    for folder in folders:
        for data_dir in data_dirs:
            directory = os.path.join(data_dir, folder)
            if files.exists(directory):
                plans.append(plan_folder(directory, "", sealed_only=True, files=files))
                break
    return [plan for plan in plans if plan.jobs or plan.findings]


class _FolderPlanner:
    """Plans one folder."""

    def __init__(self, plan: FolderPlan, files: Files, boot_id: str, sealed_only: bool) -> None:
        self.plan = plan
        self.files = files
        self.boot_id = boot_id
        self.sealed_only = sealed_only
        self.names = set(files.listdir(plan.directory))
        # New segments of an unfinished replacement that have a transaction index file.
        self.added_aborted: tuple[int, ...] = ()

    def path(self, name: str) -> str:
        return os.path.join(self.plan.directory, name)

    def add(self, kind: Kind, name: str, reason: str, *, is_sound: bool = False, offset: int | None = None) -> None:
        self.plan.findings.append(Finding(kind, self.path(name), reason, is_sound=is_sound, offset=offset))

    def run(self) -> None:
        checkpoint = self.read_checkpoint()
        quarantined = read_quarantine(self.plan.directory, self.files)
        if quarantined is None:
            self.add(Kind.UNREADABLE, QUARANTINE_NAME, "cannot be decoded; the next start reads the whole log")
            quarantined = ()
        if SYNC_FAILED_NAME in self.names:
            reason = "a sync failed here; the next start reads from the disk, not from the page cache"
            self.add(Kind.UNFINISHED, SYNC_FAILED_NAME, reason, is_sound=True)
        removed, added, clean_upto = self.read_replacement()
        if checkpoint is not None:
            clean_upto = max(clean_upto, checkpoint.clean_upto)
        bases = self.bases(removed, added)
        if not self.sealed_only:
            self.check_names(added)
            if METADATA_NAME not in self.names:
                self.add(Kind.STRAY, "", "partition.metadata is missing, so the folder is not served", is_sound=True)
            self.check_ends(bases, checkpoint, clean_upto)
        for at, base in enumerate(bases):
            next_base = bases[at + 1] if at + 1 < len(bases) else None
            job = self.job(base, next_base, checkpoint, clean_upto, quarantined, is_new=base in added)
            if not self.sealed_only or self.is_sealed(job):
                self.plan.jobs.append(job)

    # --- the small files

    def read_checkpoint(self) -> Checkpoint | None:
        data = self.files.read_file(self.path(CHECKPOINT_NAME))
        checkpoint = None if data is None else decode_checkpoint(data)
        if data is not None and checkpoint is None:
            self.add(Kind.CHECKPOINT, CHECKPOINT_NAME, "cannot be decoded; the next start reads the log from its start")
        elif data is None and not self.sealed_only and any(name.endswith(".log") for name in self.names):
            reason = "the file is missing; the next start reads the log from its start"
            self.add(Kind.CHECKPOINT, CHECKPOINT_NAME, reason, is_sound=True)
        return checkpoint

    def read_replacement(self) -> tuple[set[int], set[int], int]:
        """(removed, added, clean_upto) of a replacement that is committed but not finished."""
        try:
            manifest = read_manifest(self.plan.directory, self.files)
        except DamagedLog:
            self.add(Kind.UNREADABLE, REPLACEMENT_NAME, "cannot be decoded; the partition cannot be opened")
            return set(), set(), 0
        if manifest is None:
            return set(), set(), 0
        self.added_aborted = manifest.aborted
        reason = "a replacement of segments is not finished; the next start finishes it"
        self.add(Kind.UNFINISHED, REPLACEMENT_NAME, reason, is_sound=True)
        return set(manifest.remove), set(manifest.add), manifest.clean_upto

    def check_names(self, added: set[int]) -> None:
        for name in sorted(self.names - _FOLDER_FILES):
            whole = name.removesuffix(NEW_SUFFIX)
            match = _SEGMENT.fullmatch(whole)
            if name != whole:
                if match is None or int(match[1]) not in added:
                    self.add(Kind.STRAY, name, "an unfinished file; the next start removes it", is_sound=True)
            elif match is None:
                self.add(Kind.STRAY, name, "not a file of kwire", is_sound=True)
            elif match[2] != "log" and segment_name(int(match[1])) not in self.names:
                self.add(Kind.STRAY, name, "an index without its segment", is_sound=True)

    # --- segments

    def bases(self, removed: set[int], added: set[int]) -> list[int]:
        matches = (_SEGMENT.fullmatch(name) for name in self.names)
        there = {int(match[1]) for match in matches if match is not None and match[2] == "log"}
        return sorted((there - removed) | added)

    def check_ends(self, bases: list[int], checkpoint: Checkpoint | None, clean_upto: int) -> None:
        if checkpoint is None:
            return
        start = checkpoint.log_start_offset
        if not bases:
            if checkpoint.offset > start:
                reason = f"the checkpoint has offsets {start}..{checkpoint.offset - 1}, but there is no segment"
                self.add(Kind.MISSING, CHECKPOINT_NAME, reason, offset=start)
            return
        if bases[0] > max(start, clean_upto):
            reason = f"offsets {start}..{bases[0] - 1} are missing"
            self.add(Kind.MISSING, segment_name(bases[0]), reason, offset=start)
        for base, next_base in pairwise(bases):
            if next_base <= start:
                reason = f"entirely below the log start offset {start}; the next start removes it"
                self.add(Kind.STRAY, segment_name(base), reason, is_sound=True)

    def job(
        self,
        base: int,
        next_base: int | None,
        checkpoint: Checkpoint | None,
        clean_upto: int,
        quarantined: tuple[Quarantine, ...],
        *,
        is_new: bool,
    ) -> SegmentJob:
        log_name, index = segment_name(base), index_name(base)
        # An unfinished replacement may have renamed only one of the two files.
        if is_new:
            log_name += NEW_SUFFIX if log_name + NEW_SUFFIX in self.names else ""
            index += NEW_SUFFIX if index + NEW_SUFFIX in self.names else ""
        txn_index = txn_index_name(base)
        if is_new and txn_index + NEW_SUFFIX in self.names:
            txn_index += NEW_SUFFIX
        has_aborted = txn_index in self.names and (not is_new or base in self.added_aborted)
        size_bytes = self.files.size_of(self.path(log_name))
        is_same_boot = checkpoint is not None and self.boot_id != "" and checkpoint.boot_id == self.boot_id
        known_offset, is_truncated = 0, False
        if checkpoint is not None and next_base is None:
            is_truncated = checkpoint.is_clean and checkpoint.segment_base == base and checkpoint.position == size_bytes
            # A clean checkpoint describes synced files. Any other checkpoint describes the page cache of its boot.
            known_offset = checkpoint.offset if checkpoint.is_clean or is_same_boot else 0
            next_base = checkpoint.offset if is_truncated else None
        elif checkpoint is not None:
            is_truncated = base < checkpoint.scan_from
        return SegmentJob(
            directory=self.plan.directory,
            base_offset=base,
            log_name=log_name,
            index_name=index,
            size_bytes=size_bytes,
            next_base=next_base,
            known_offset=known_offset,
            clean_upto=clean_upto,
            is_truncated=is_truncated,
            is_same_boot=is_same_boot,
            quarantined=tuple(one for one in quarantined if one.segment_base == base),
            txn_index_name=txn_index if has_aborted else "",
        )

    def is_sealed(self, job: SegmentJob) -> bool:
        """Whether the segment no longer changes: closed by a roll, or the last one of a log that is not open."""
        if job.next_base is None:
            return False
        data = self.files.read_file(job.index_path)
        # An open segment may have an older seal, which later appends have made invalid.
        return data is not None and decode_sealed(job.base_offset, data, job.size_bytes) is not None

"""Restores a backup into empty data directories.

The logs are written first and the catalogue last, so a restoration that was interrupted leaves directories with which
no server starts. Every file is compared with its checksum while it is copied.

The restored node differs from the one that was backed up in three entries of the metadata store, because the old server
may have run on after the backup:

- The number of starts, which is the leader epoch, is EPOCHS_SKIPPED higher. Clients that know a later epoch of the old
  server would otherwise ignore the restored one.
- The next producer id is PRODUCER_IDS_SKIPPED higher, so that no id that the old server has assigned is assigned again.
- The id of the data directory is new. Files of events (`kwire.events.files.dir`) belong to the old one.
"""

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kwire.access.secrets.node_keys import ENCRYPTED, KEY_FILE_NAME, WEBHOOKS_PREFIX
from kwire.broker.admin.producer_ids import BLOCK_SIZE
from kwire.broker.admin.producer_ids import KEY as PRODUCER_IDS_KEY
from kwire.broker.topics.startup import NODE_KEY, new_cluster_id
from kwire.cli.backup.creation import SPARE_BYTES, read_secrets_key
from kwire.cli.backup.format import BackupFile, InvalidBackup, Manifest, OnBytes, checked_chunks
from kwire.cli.framework.errors import UsageError
from storage.data_directory.folder_list import FOLDERS_NAME, encode_folder_list
from storage.data_directory.partition_metadata import METADATA_NAME, decode_metadata
from storage.data_directory.store import make_data_dir
from storage.disk.files import Files
from storage.disk.journal import decode_journal, encode_journal
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import JournalDamaged

EPOCHS_SKIPPED = 1000
PRODUCER_IDS_SKIPPED = 1_000_000 * BLOCK_SIZE
# The id of a cluster is a UUID in URL-safe base64 without padding.
CLUSTER_ID_LENGTH = 22
_JOURNAL_BYTES_MAX = 2 * 1024**3


class Restored(NamedTuple):
    """The result. `needs_secrets_key`: there are stored secrets, and the key to decrypt them was not restored."""

    cluster_id: str
    topic_count: int
    partition_count: int
    size_bytes: int
    needs_secrets_key: bool


class Restoration:
    """The restoration of one backup. `run` does all of it."""

    def __init__(
        self,
        backup: Path,
        manifest: Manifest,
        checksums: Mapping[str, str],
        data_dirs: Sequence[Path],
        *,
        cluster_id: str | None = None,
        is_new_cluster: bool = False,
        secrets_key: Path | None = None,
        on_bytes: OnBytes,
    ) -> None:
        """`cluster_id` replaces the old one; with `is_new_cluster` a new one is made. `secrets_key` is a key file."""
        self._backup = backup
        self._manifest = manifest
        self._checksums = checksums
        self._dirs = [Path(os.path.abspath(one)) for one in data_dirs]
        self._cluster_id = new_cluster_id() if is_new_cluster else cluster_id or manifest.cluster_id
        self._secrets_key = read_secrets_key(secrets_key) if secrets_key is not None else None
        self._on_bytes = on_bytes
        self._files = Files()

    def run(self) -> Restored:
        """Restore the backup. If this fails, what was written is removed. Raises ValueError or OSError."""
        self._check_targets()
        made = [one for one in self._dirs if not one.exists()]
        try:
            for data_dir in self._dirs:
                make_data_dir(str(data_dir), self._files)
            listed = self._restore_logs()
            needs_key = self._restore_catalogue(listed)
        except BaseException:
            for data_dir in self._dirs:
                _empty(data_dir, is_removed=data_dir in made)
            raise
        manifest = self._manifest
        return Restored(self._cluster_id, manifest.topics, manifest.partitions, manifest.size_bytes, needs_key)

    def _check_targets(self) -> None:
        if len(set(self._dirs)) < len(self._dirs):
            raise UsageError("a data directory is named twice")
        for data_dir in self._dirs:
            if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
                raise UsageError(f"{data_dir} is not empty; a backup is restored only into empty directories")
        self._places = self._distributed()
        for data_dir, size_bytes in self._sizes.items():
            free_bytes = shutil.disk_usage(_existing(data_dir)).free
            if free_bytes < size_bytes + SPARE_BYTES:
                raise OSError(f"{data_dir} needs {size_bytes} bytes, but its disk has only {free_bytes} free")

    def _distributed(self) -> dict[str, Path]:
        """Return the directory of each log: the largest logs first, each to the directory with the fewest bytes."""
        self._sizes = dict.fromkeys(self._dirs, 0)
        sizes = {folder: sum(one.size_bytes for one in files) for folder, files in self._manifest.folders.items()}
        places = {}
        for folder in sorted(sizes, key=lambda one: (-sizes[one], one)):
            places[folder] = min(self._dirs, key=self._sizes.__getitem__)
            self._sizes[places[folder]] += sizes[folder]
        return places

    # --- logs

    def _restore_logs(self) -> dict[str, bytes]:
        """Copy all logs. Returns the topic id of each folder."""
        listed: dict[str, bytes] = {}
        for folder, files in self._manifest.folders.items():
            path = self._places[folder] / folder
            path.mkdir(mode=0o700)
            for file in files:
                self._copy(file, path / os.path.basename(file.path))
            topic_id = decode_metadata(self._files.read_file(str(path / METADATA_NAME)))
            if topic_id is None:
                raise InvalidBackup(f"{self._backup / 'logs' / folder / METADATA_NAME} has no topic id")
            listed[folder] = topic_id
        for data_dir in self._dirs:
            self._files.syncfs(str(data_dir))
        return listed

    def _copy(self, file: BackupFile, target: Path) -> None:
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as opened:
            for chunk in checked_chunks(self._backup, file, self._checksums[file.path]):
                view = memoryview(chunk)
                while view:
                    view = view[opened.write(view) :]
                self._on_bytes(len(chunk))

    # --- the catalogue

    def _restore_catalogue(self, listed: dict[str, bytes]) -> bool:
        """Write the key, the list of folders and the catalogue. Returns whether a key of stored secrets is missing."""
        entries, records = self._read_journal()
        first = str(self._dirs[0])
        key = self._secrets_key
        if key is None and self._manifest.has_secrets_key:
            key = self._content(KEY_FILE_NAME)
        if key is not None:
            fd = self._files.create_private(os.path.join(first, KEY_FILE_NAME))
            try:
                self._files.write_all(fd, key, 0)
                self._files.fsync(fd)
            finally:
                self._files.close(fd)
        self._add_offline(entries, listed)
        self._files.replace_file(os.path.join(first, FOLDERS_NAME), encode_folder_list(listed), sync=True)
        journal = encode_journal([*records, self._last_record(entries, records)])
        for name in (MIRROR_NAME, JOURNAL_NAME):
            self._files.replace_file(os.path.join(first, name), journal, sync=True)
        return key is None and _has_secrets(entries)

    def _content(self, path: str) -> bytes:
        file = next(one for one in self._manifest.files if one.path == path)
        if file.size_bytes > _JOURNAL_BYTES_MAX:
            raise InvalidBackup(f"{path} has more than {_JOURNAL_BYTES_MAX} bytes")
        return b"".join(checked_chunks(self._backup, file, self._checksums[path]))

    def _read_journal(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the entries of the metadata store, and the records of its journal."""
        path = str(self._backup / JOURNAL_NAME)
        raw = self._content(JOURNAL_NAME)
        try:
            records, end = decode_journal(path, raw)
        except JournalDamaged as error:
            raise InvalidBackup(str(error)) from None
        if end != len(raw) or not records:
            raise InvalidBackup(f"{path} is cut short or empty")
        entries: dict[str, Any] = {}
        for record in records:
            entries.update(json.loads(record)["set"])
        return {key: value for key, value in entries.items() if value is not None}, records

    def _add_offline(self, entries: Mapping[str, Any], listed: dict[str, bytes]) -> None:
        """List the folders of offline partitions, so that the restored server does not serve them as empty logs."""
        for folder in self._manifest.offline:
            topic = entries.get(f"topics/{folder.rpartition('-')[0]}")
            if topic is not None:
                listed.setdefault(folder, bytes.fromhex(topic["id"]))

    def _last_record(self, entries: Mapping[str, Any], records: Sequence[bytes]) -> bytes:
        """Return the record that changes the entries of the node itself."""
        node = dict(entries.get(NODE_KEY, {}))
        node |= {
            "cluster_id": self._cluster_id,
            "starts": node.get("starts", 0) + EPOCHS_SKIPPED,
            "directory_id": uuid.uuid4().hex,
        }
        changed: dict[str, Any] = {NODE_KEY: node}
        producer_ids = entries.get(PRODUCER_IDS_KEY)
        if producer_ids is not None:
            changed[PRODUCER_IDS_KEY] = {**producer_ids, "next": producer_ids["next"] + PRODUCER_IDS_SKIPPED}
        revision = json.loads(records[-1])["revision"] + 1
        return json.dumps({"revision": revision, "set": changed}).encode()


def _has_secrets(entries: Mapping[str, Any]) -> bool:
    return any(key.startswith(WEBHOOKS_PREFIX) and ENCRYPTED in value for key, value in entries.items())


def _existing(path: Path) -> Path:
    """Return the path, or its lowest parent that exists."""
    while not path.exists():
        path = path.parent
    return path


def _empty(data_dir: Path, *, is_removed: bool) -> None:
    """Remove what a failed restoration wrote. The directory was empty, or did not exist, before."""
    with suppress(OSError):
        for one in list(data_dir.iterdir()):
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one)
            else:
                one.unlink()
        if is_removed:
            data_dir.rmdir()

"""The format of a backup: a folder with the files of a snapshot, a manifest and checksums.

    manifest.json        what the backup has: the server, the time, and the path and size of every file
    SHA256SUMS           the checksum of every file and of manifest.json; `sha256sum -c SHA256SUMS` checks it, too
    metastore.journal    the metadata store: topics, settings, users, ACLs, keys, quotas, webhooks
    secrets.key          only if it was asked for: the keys of stored secrets
    logs/orders-0/…      the log of each partition, as in a data directory

SHA256SUMS is written last. So a folder without it is a backup that was not finished.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kwire.access.secrets.node_keys import KEY_FILE_NAME
from kwire.cli.framework.errors import CannotRun
from storage.disk.mirrored_journal import JOURNAL_NAME

FORMAT: Final = "kwire backup"
# The version of the format. A program reads this version and earlier ones.
VERSION: Final = 1
MANIFEST_NAME: Final = "manifest.json"
CHECKSUMS_NAME: Final = "SHA256SUMS"
# The manifest needs about 150 bytes per file, and a backup has at most a million files.
MANIFEST_BYTES_MAX: Final = 512 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024

# The names of files in a backup. A path that does not fit could lead out of the folder.
_PATH: Final = re.compile(r"logs/[A-Za-z0-9._-]{1,249}-\d{1,10}/[A-Za-z0-9_][A-Za-z0-9._-]{0,100}")
_CHECKSUM: Final = re.compile(r"([0-9a-f]{64})  (.+)")

# Called with the number of bytes that were processed since the last call.
OnBytes = Callable[[int], None]


class InvalidBackup(ValueError):
    """The folder is not a backup, or the backup is damaged or not complete. The message says where."""


class NotABackup(InvalidBackup, CannotRun):
    """The folder is not a backup."""


class BackupFile(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int


class Manifest(msgspec.Struct, kw_only=True):
    """The content of manifest.json."""

    format: str = FORMAT
    version: int = VERSION
    created_ms: int
    server_version: str
    cluster_id: str
    node_id: int
    revision: int
    topics: int
    partitions: int
    # Partitions and data directories that were offline, so that the backup does not have their records.
    offline: dict[str, str] = {}
    files: list[BackupFile]

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)

    @property
    def folders(self) -> dict[str, list[BackupFile]]:
        """The files of each log, by the name of its folder."""
        found: dict[str, list[BackupFile]] = {}
        for one in self.files:
            if one.path.startswith("logs/"):
                found.setdefault(one.path.split("/")[1], []).append(one)
        return found

    @property
    def has_secrets_key(self) -> bool:
        return any(one.path == KEY_FILE_NAME for one in self.files)


def is_valid_path(path: str) -> bool:
    return path in (JOURNAL_NAME, KEY_FILE_NAME) or _PATH.fullmatch(path) is not None


def read_backup(backup: Path) -> tuple[Manifest, Mapping[str, str]]:
    """Return the manifest, whose checksum is checked, and the checksums of the files. Raises InvalidBackup or OSError.

    The files themselves are not read.
    """
    if not backup.is_dir():
        raise NotABackup(f"{backup} is not a folder; name the folder that `kwire backup create` made")
    manifest_path = backup / MANIFEST_NAME
    if not manifest_path.exists() and not (backup / CHECKSUMS_NAME).exists():
        raise NotABackup(f"{backup} is not a backup: it has no {MANIFEST_NAME}")
    checksums = read_checksums(backup)
    raw = _read_small(manifest_path)
    if hashlib.sha256(raw).hexdigest() != checksums.pop(MANIFEST_NAME, None):
        raise InvalidBackup(f"{manifest_path} is damaged: its checksum is not the one in {CHECKSUMS_NAME}")
    manifest = _decoded(manifest_path, raw)
    paths = [one.path for one in manifest.files]
    for path in paths:
        if not is_valid_path(path):
            raise InvalidBackup(f"{manifest_path} names a file that no backup has: {path!r}")
    if len(set(paths)) < len(paths) or JOURNAL_NAME not in paths:
        raise InvalidBackup(f"{manifest_path}: {JOURNAL_NAME} is missing, or a file is named twice")
    if checksums.keys() != set(paths):
        one = sorted(checksums.keys() ^ set(paths))[0]
        raise InvalidBackup(f"{one} is in only one of {MANIFEST_NAME} and {CHECKSUMS_NAME} of {backup}")
    return manifest, checksums


def _decoded(path: Path, raw: bytes) -> Manifest:
    try:
        facts: Any = json.loads(raw)
    except ValueError as error:
        raise InvalidBackup(f"{path} is not JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InvalidBackup(f"{path} is not the manifest of a kwire backup")
    version = facts.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise InvalidBackup(
            f"the backup has version {version} of the format, this program reads versions up to {VERSION}; use a newer "
            "kwire"
        )
    try:
        return msgspec.convert(facts, Manifest)
    except msgspec.ValidationError as error:
        raise InvalidBackup(f"{path}: {error}") from None


def read_checksums(backup: Path) -> dict[str, str]:
    """Return the checksum of each file. Raises InvalidBackup or OSError."""
    path = backup / CHECKSUMS_NAME
    if not path.exists():
        raise InvalidBackup(
            f"{backup} is not complete: it has no {CHECKSUMS_NAME}, which is written last; make it again"
        )
    found: dict[str, str] = {}
    lines = _read_small(path).decode("utf-8", "replace").split("\n")
    if lines.pop() != "":
        raise InvalidBackup(f"{path} is cut short")
    for number, line in enumerate(lines, start=1):
        match = _CHECKSUM.fullmatch(line)
        if match is None or match[2] in found:
            raise InvalidBackup(f"{path} is damaged: line {number} is not a checksum, or names a file twice")
        found[match[2]] = match[1]
    return found


def _read_small(path: Path) -> bytes:
    if not path.is_file():
        raise InvalidBackup(f"{path} is missing")
    if path.stat().st_size > MANIFEST_BYTES_MAX:
        raise InvalidBackup(f"{path} has more than {MANIFEST_BYTES_MAX} bytes")
    return path.read_bytes()


def write_end(backup: Path, manifest: Manifest, checksums: Mapping[str, str]) -> None:
    """Write the manifest and then the checksums, durably. This makes the backup complete. Raises OSError."""
    raw = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    _write_durably(backup / MANIFEST_NAME, raw)
    lines = [f"{digest}  {path}\n" for path, digest in checksums.items()]
    lines.append(f"{hashlib.sha256(raw).hexdigest()}  {MANIFEST_NAME}\n")
    sync_directory(backup)
    _write_durably(backup / CHECKSUMS_NAME, "".join(lines).encode())
    sync_directory(backup)


def _write_durably(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def checked_chunks(backup: Path, file: BackupFile, digest: str) -> Iterator[bytes]:
    """Yield the content of a file. Raises InvalidBackup if its size is wrong, or at the end if its checksum is."""
    path = backup / file.path
    if path.is_symlink() or not path.is_file():
        raise InvalidBackup(f"{path} is missing")
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        raise InvalidBackup(f"{path} has {size_bytes} bytes, the backup was made with {file.size_bytes}")
    hashed = hashlib.sha256()
    with path.open("rb", buffering=0) as opened:
        while chunk := opened.read(CHUNK_BYTES):
            hashed.update(chunk)
            yield chunk
    if hashed.hexdigest() != digest:
        raise InvalidBackup(f"{path} is damaged: its checksum is not the one in {CHECKSUMS_NAME}")


def unexpected_files(backup: Path, manifest: Manifest) -> Sequence[str]:
    """Return the paths of files in the folder that do not belong to the backup."""
    known = {MANIFEST_NAME, CHECKSUMS_NAME, *(one.path for one in manifest.files)}
    found = (path for path in backup.rglob("*") if not path.is_dir())
    return sorted(str(path.relative_to(backup)) for path in found if str(path.relative_to(backup)) not in known)

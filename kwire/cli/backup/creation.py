"""Makes a backup: asks the server for a snapshot, copies its files and writes the checksums."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from kwire.access.secrets.key_file import FILE_BYTES_MAX, InvalidKeyFile, parse_keys
from kwire.access.secrets.node_keys import KEY_FILE_NAME
from kwire.cli.backup.format import BackupFile, InvalidBackup, Manifest, OnBytes, is_valid_path, write_end
from kwire.cli.framework.errors import UsageError
from storage.disk.files import Files

# The number of files that one request lists.
PAGE_FILES = 5_000
# The margin of free space that stays after the backup.
SPARE_BYTES = 16 * 1024 * 1024


class Http(Protocol):
    """The part of the HTTP client that is needed here."""

    def request(self, method: str, path: str, body: Any = None) -> Any: ...

    def fetch(self, path: str) -> bytes: ...


class ServerSnapshot:
    """A snapshot on the server, which is removed at the end of the context."""

    def __init__(self, client: Http, facts: Mapping[str, Any]) -> None:
        self._client = client
        self.facts = facts
        self.path = f"/admin/backups/{facts['id']}"

    def files(self) -> Iterator[tuple[int, BackupFile]]:
        """Yield the number, the path and the size of each file. Raises InvalidBackup if a path is not valid."""
        after: int | None = -1
        while after is not None:
            page = self._client.request("GET", f"{self.path}/files?after={after}&limit={PAGE_FILES}")
            for one in page["files"]:
                if not is_valid_path(one["path"]):
                    raise InvalidBackup(f"the server named a file that no backup has: {one['path']!r}")
                yield one["number"], BackupFile(one["path"], one["size_bytes"])
            after = page["next"]

    def chunks(self, number: int, file: BackupFile) -> Iterator[bytes]:
        """Yield the content of a file. Raises InvalidBackup if it is shorter than announced."""
        offset = 0
        while offset < file.size_bytes:
            chunk = self._client.fetch(f"{self.path}/files/{number}?offset={offset}")
            offset += len(chunk)
            if not chunk or offset > file.size_bytes:
                raise InvalidBackup(f"the server sent {offset} bytes of {file.path}, which has {file.size_bytes}")
            yield chunk


@contextmanager
def server_snapshot(client: Http) -> Iterator[ServerSnapshot]:
    """Make a snapshot on the server, and remove it at the end."""
    snapshot = ServerSnapshot(client, client.request("POST", "/admin/backups"))
    try:
        yield snapshot
    finally:
        # If this fails, the server removes the snapshot later by itself.
        with suppress(OSError, ValueError):
            client.request("DELETE", snapshot.path)


def check_target(target: Path) -> None:
    """Raise InvalidBackup if the folder of a new backup exists and is not empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty; name a folder that does not exist")


def create_backup(
    snapshot: ServerSnapshot, target: Path, *, secrets_key: Path | None, allows_offline: bool, on_bytes: OnBytes
) -> Manifest:
    """Copy a snapshot to the new folder `target`. If this fails, what was written is removed.

    Raises InvalidBackup, OSError or an error of the client.
    """
    facts = snapshot.facts
    if facts["offline"] and not allows_offline:
        shown = "; ".join(f"{name}: {reason}" for name, reason in list(facts["offline"].items())[:5])
        raise InvalidBackup(
            f"{len(facts['offline'])} partitions or directories are offline, and their records would be "
            f"missing: {shown}. Repair them, or use --skip-offline to make the backup without them"
        )
    key = read_secrets_key(secrets_key) if secrets_key is not None else None
    check_target(target)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    files: list[BackupFile] = []
    checksums: dict[str, str] = {}
    try:
        _check_space(target, facts["size_bytes"])
        for number, file in snapshot.files():
            checksums[file.path] = _write(target / file.path, snapshot.chunks(number, file), on_bytes)
            files.append(file)
        if len(files) != facts["files"]:
            raise InvalidBackup(f"the server listed {len(files)} files, but the snapshot has {facts['files']}")
        if key is not None:
            checksums[KEY_FILE_NAME] = _write(target / KEY_FILE_NAME, iter([key]), on_bytes)
            files.append(BackupFile(KEY_FILE_NAME, len(key)))
        manifest = Manifest(
            created_ms=facts["created_ms"],
            server_version=facts["version"],
            cluster_id=facts["cluster_id"],
            node_id=facts["node_id"],
            revision=facts["revision"],
            topics=facts["topics"],
            partitions=facts["partitions"],
            offline=dict(facts["offline"]),
            files=files,
        )
        Files().syncfs(str(target))
        write_end(target, manifest, checksums)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return manifest


def read_secrets_key(path: Path) -> bytes:
    """Return the content of a key file. Raises ValueError or OSError."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    try:
        parse_keys(data)
    except InvalidKeyFile as error:
        raise ValueError(f"{path} is not a key file: {error}") from None
    return data


def _check_space(target: Path, size_bytes: int) -> None:
    free_bytes = shutil.disk_usage(target).free
    if free_bytes < size_bytes + SPARE_BYTES:
        raise OSError(f"the backup needs {size_bytes} bytes, but the disk of {target} has only {free_bytes} free")


def _write(path: Path, chunks: Iterator[bytes], on_bytes: OnBytes) -> str:
    """Write a file and return its checksum. The file is not synced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed = hashlib.sha256()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
        for chunk in chunks:
            hashed.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
            on_bytes(len(chunk))
    return hashed.hexdigest()

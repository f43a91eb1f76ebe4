"""Checks a backup: the manifest, and the size and checksum of every file."""

from collections.abc import Mapping
from pathlib import Path

from kwire.cli.backup.format import BackupFile, InvalidBackup, Manifest, OnBytes, checked_chunks, unexpected_files

# At most this many problems are returned.
PROBLEMS_MAX = 100


def verify_files(backup: Path, manifest: Manifest, checksums: Mapping[str, str], on_bytes: OnBytes) -> list[str]:
    """Return the problems of the files: damaged, missing and unknown ones. A sound backup has none. Raises OSError."""
    problems: list[str] = []
    for file in manifest.files:
        problem = _problem(backup, file, checksums[file.path], on_bytes)
        if problem is not None:
            problems.append(problem)
            if len(problems) >= PROBLEMS_MAX:
                return problems
    unknown = unexpected_files(backup, manifest)
    if unknown:
        problems.append(f"{backup / unknown[0]} does not belong to the backup; there are {len(unknown)} such files")
    return problems


def _problem(backup: Path, file: BackupFile, digest: str, on_bytes: OnBytes) -> str | None:
    try:
        for chunk in checked_chunks(backup, file, digest):
            on_bytes(len(chunk))
    except InvalidBackup as error:
        return str(error)
    return None

"""A file system of a few megabytes for a server of its own: a tmpfs that only the test's processes see.

A process that sleeps keeps a private mount namespace alive; servers are started inside it, and the mount is gone with
that process, whatever happens to the test. Needs root.
"""

import subprocess
from functools import cache
from pathlib import Path

from tests.support.server import STOP_TIMEOUT_S, KwireProcess

# Longer than any test; the process is ended by the test, this is for tests that die.
_KEEP_S = 1_800
_MOUNT = 'mount -t tmpfs -o size="$1" none "$0" && echo mounted && exec sleep "$2"'
_TRY_TIMEOUT_S = 20


@cache
def can_mount_small_disk() -> bool:
    try:
        tried = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            timeout=_TRY_TIMEOUT_S,
            check=False,
        )
    except OSError:
        return False
    return tried.returncode == 0


class SmallDisk:
    """``path`` is where servers on this disk see it, ``outside`` where the test does."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.mkdir(parents=True)
        self.path = path
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _MOUNT, str(path), str(size_bytes), str(_KEEP_S)],
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as output:
            assert output.readline() == b"mounted\n"

    @property
    def keeper_pid(self) -> int:
        return self._keeper.pid

    @property
    def outside(self) -> Path:
        return Path(f"/proc/{self._keeper.pid}/root{self.path}")

    def put_ballast(self, size_bytes: int) -> None:
        """Take this much room away from the server."""
        (self.outside / "ballast").write_bytes(bytes(size_bytes))

    def remove_ballast(self) -> None:
        (self.outside / "ballast").unlink()

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait(STOP_TIMEOUT_S)


class SmallDiskProcess(KwireProcess):
    """A server whose data directory is on a small disk."""

    def __init__(self, directory: Path, disk: SmallDisk) -> None:
        super().__init__(directory, data_dir=disk.path / "data")
        self._disk = disk

    def command(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._disk.keeper_pid}/ns/mnt", *super().command()]

"""The twin of :class:`storage.disk.files.Files` on which everything can go wrong.

Calls fail when they are told to, writes are torn, and a power cut forgets what was not synced.
"""

import errno
import os
from collections import defaultdict

from storage.disk.files import BytesLike, Files


class FaultyFiles(Files):
    """Real files in a bad world."""

    def __init__(self) -> None:
        self._failures: dict[str, list[OSError | None]] = defaultdict(list)
        self._broken: dict[str, OSError] = {}
        self._tear_bytes: int | None = None
        self._unsynced: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.calls: dict[str, int] = defaultdict(int)
        self.boot = "00000000-0000-0000-0000-000000000001"
        # So many that a few files are synced one by one.
        self.unwritten = 1 << 40

    # --- what the test asks for

    def fail_next(self, operation: str, error_number: int = errno.EIO, *, after: int = 0) -> None:
        """Let the call after the next ``after`` ones fail, once."""
        self._failures[operation].extend([None] * after)
        self._failures[operation].append(OSError(error_number, os.strerror(error_number)))

    def break_down(self, operation: str, error_number: int = errno.ENOSPC) -> None:
        """Let every call fail until :meth:`repair`."""
        self._broken[operation] = OSError(error_number, os.strerror(error_number))

    def repair(self) -> None:
        self._broken.clear()
        self._failures.clear()

    def tear_next_write(self, size_bytes: int) -> None:
        """The next write puts in ``size_bytes`` and then fails."""
        self._tear_bytes = size_bytes

    def cut_power(self) -> None:
        """Zero what was written and not synced; the machine comes back with another boot id."""
        for path, ranges in self._unsynced.items():
            if not os.path.exists(path):
                continue
            with open(path, "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                for start, end in ranges:
                    file.seek(start)
                    file.write(bytes(max(0, min(end, size) - start)))
        self._unsynced.clear()
        self.boot = "00000000-0000-0000-0000-000000000002"

    # --- the world

    def _enter(self, operation: str) -> None:
        self.calls[operation] += 1
        if operation in self._broken:
            raise self._broken[operation]
        failures = self._failures[operation]
        if failures:
            error = failures.pop(0)
            if error is not None:
                raise error

    @staticmethod
    def _path(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    def create(self, path: str) -> int:
        self._enter("create")
        return super().create(path)

    def open_write(self, path: str) -> int:
        self._enter("open_write")
        return super().open_write(path)

    def pwrite(self, fd: int, data: BytesLike, position: int) -> int:  # type: ignore[override]
        self._enter("pwrite")
        torn, self._tear_bytes = self._tear_bytes, None
        if torn is not None:
            data = memoryview(data)[:torn]
        written = super().pwrite(fd, data, position) if len(data) else 0
        self._unsynced[self._path(fd)].append((position, position + written))
        if torn is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return written

    def fallocate(self, fd: int, position: int, size: int) -> None:
        self._enter("fallocate")
        super().fallocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        self._enter("truncate")
        super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        self._enter("fsync")
        super().fsync(fd)
        self._unsynced.pop(self._path(fd), None)

    def fdatasync(self, fd: int) -> None:
        self._enter("fdatasync")
        super().fdatasync(fd)
        self._unsynced.pop(self._path(fd), None)

    def open_dir(self, path: str) -> int:
        self._enter("open_dir")
        return super().open_dir(path)

    def fsync_dir(self, path: str, fd: int | None = None) -> None:
        self._enter("fsync_dir")
        super().fsync_dir(path, fd)

    def syncfs(self, path: str) -> None:
        self._enter("syncfs")
        self._unsynced.clear()

    def unwritten_bytes(self) -> int:
        return self.unwritten

    def rename(self, source: str, target: str) -> None:
        self._enter("rename")
        super().rename(source, target)
        if source in self._unsynced:
            self._unsynced[target] = self._unsynced.pop(source)

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir")
        return super().listdir(path)

    def makedirs(self, path: str) -> None:
        self._enter("makedirs")
        super().makedirs(path)

    def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
        self._enter("map_readonly")
        return super().map_readonly(fd, position, size)

    def boot_id(self) -> str:
        return self.boot

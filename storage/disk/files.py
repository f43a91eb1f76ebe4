"""The only interface of storage to the file system.

Everything that opens, writes, maps, syncs or renames a file uses one :class:`Files` object. Tests can replace it by a
simulated disk that gets full, fails, tears writes and loses bytes that were not synced. Methods raise plain
``OSError``, which the callers convert to their own errors. All methods may be called from any thread.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.disk.kernel_syncs import KernelSyncs

BytesLike = bytes | bytearray | memoryview

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_MEMINFO_PATH: Final = "/proc/meminfo"
_MEMINFO_BYTES: Final = 8192
_DIRTY_PATTERN: Final = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)
_DIRTY_LINES: Final = 2
_UNKNOWN_BYTES: Final = 1 << 62
_FILE_MODE: Final = 0o644
_PRIVATE_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o755


class Files:
    """The real file system."""

    # Directories that are held open for `syncfs`.
    _watched: Mapping[str, int] = MappingProxyType({})
    # By data directory: a function that frees a piece of its disk reserve. It returns False if none is left.
    _reserves: Mapping[str, Callable[[], bool]] = MappingProxyType({})

    # --- opening

    def create(self, path: str) -> int:
        """Open a new, empty file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)

    def create_private(self, path: str) -> int:
        """Open a new file that only its owner can read, for reading and writing. It must not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE_MODE)

    def open_write(self, path: str) -> int:
        """Open an existing or new file for reading and writing. The content is kept."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def duplicate(self, fd: int) -> int:
        return os.dup(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def lock(self, path: str) -> int | None:
        """Lock ``path``. Returns a descriptor that holds the lock until it is closed; None if ``path`` is locked."""
        fd = self.open_write(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    # --- bytes

    # May write only a part. Returns the number of bytes written. It is static because it runs once per append, and the
    # call of a Python method would cost time.
    pwrite = staticmethod(os.pwrite)

    def write_all(self, fd: int, data: BytesLike, position: int) -> None:
        """Write all of ``data``, with as many writes as needed."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end of the file."""
        pieces = []
        while size > 0:
            piece = os.pread(fd, size, position)
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
            position += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        return os.preadv(fd, buffers, position)

    def read_file(self, path: str) -> bytes | None:
        """The content of the file, or None if it does not exist."""
        try:
            fd = self.open_read(path)
        except FileNotFoundError:
            return None
        try:
            return self.pread(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def read_end(self, path: str, size: int) -> bytes | None:
        """The last ``size`` bytes of a file, or None if it does not exist or is shorter."""
        try:
            fd = self.open_read(path)
        except FileNotFoundError:
            return None
        try:
            start = self.size(fd) - size
            return self.pread(fd, size, start) if start >= 0 else None
        finally:
            self.close(fd)

    def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
        """A view of the page cache from a page boundary on. The map exists as long as a slice of the view exists."""
        return memoryview(mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=position))

    def forbid_readahead(self, view: memoryview) -> None:
        """Disable readahead: a page fault in this map reads one page. ``LogRead.warm_up`` reads ahead in threads."""
        mapped = view.obj
        assert isinstance(mapped, mmap.mmap)
        mapped.madvise(mmap.MADV_RANDOM)

    # The functions are imported on first use, so that a start does not load ctypes.

    def is_cached(self, fd: int, start: int, end: int) -> bool | None:
        """Whether all these bytes of a file are in memory; None if the kernel reports this only for maps."""
        from storage.segment.residency import is_cached

        self.is_cached = is_cached  # type: ignore[method-assign]  # runs once per read: later calls skip this frame
        return is_cached(fd, start, end)

    def is_resident(self, view: memoryview) -> bool:
        """Whether all pages of a slice of a map are in memory."""
        from storage.segment.residency import is_resident

        return is_resident(view)

    # --- length

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def is_plain(self, path: str) -> bool:
        """Whether ``path`` is a regular file: not a symbolic link, a folder, or something that blocks a reader."""
        return stat.S_ISREG(os.lstat(path).st_mode)

    def modified_ms_of(self, path: str) -> int:
        """The modification time of the file, by the machine's clock."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def device_of(self, path: str) -> int:
        """The device number of the file system that holds ``path``."""
        return os.stat(path).st_dev

    def fallocate(self, fd: int, position: int, size: int) -> None:
        """Reserve zeroed space, so that a later write cannot fail on a full disk.

        Other threads may write to the same range during the call. Raises ``OSError`` with EOPNOTSUPP if the file system
        cannot reserve space.
        """
        from storage.disk.allocation import fallocate  # loads ctypes, in the first thread that needs it

        fallocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        """Truncate the file. Bytes of mapped slices must not be removed: reading them would cause a fatal signal."""
        os.ftruncate(fd, size)

    def space(self, path: str) -> tuple[int, int]:
        """(size, bytes that this process may still use) of the volume that holds ``path``."""
        facts = os.statvfs(path)
        return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize

    def add_reserve(self, data_dir: str, release: Callable[[], bool]) -> None:
        self._reserves = {**self._reserves, data_dir: release}

    def remove_reserve(self, data_dir: str) -> None:
        self._reserves = {one: release for one, release in self._reserves.items() if one != data_dir}

    def free_reserve(self, path: str) -> bool:
        """Free a piece of the disk reserve of the data directory that holds ``path``. Returns False if none is left."""
        return any(release() for data_dir, release in self._reserves.items() if path.startswith(data_dir + os.sep))

    # --- durability

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def kernel_syncs(self) -> KernelSyncs | None:
        """Asynchronous syncs by the kernel. None if the system has none, or if a subclass replaces ``fdatasync``."""
        if type(self).fdatasync is not _FDATASYNC:
            return None
        from storage.disk.kernel_syncs import KernelSyncs  # loads ctypes

        try:
            return KernelSyncs()
        except OSError:
            return None

    def open_dir(self, path: str) -> int:
        """Open a directory for :meth:`fsync_dir`, before a change: the sync after it must not lack a descriptor."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def fsync_dir(self, path: str, fd: int | None = None) -> None:
        """Make the creation, renaming and removal of files in ``path`` durable. ``fd`` is the directory, if open."""
        if fd is not None:
            self.fsync(fd)
            return
        fd = self.open_dir(path)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def syncfs(self, path: str) -> None:
        """Make everything durable that was written to the file system of ``path``, by any process."""
        import ctypes  # Python has no function for this call

        watched = self._watched.get(path)
        fd = self.open_dir(path) if watched is None else watched
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            if watched is None:
                self.close(fd)

    def unwritten_bytes(self) -> int:
        """The dirty bytes in this machine's page cache: an upper bound of the bytes that :meth:`syncfs` writes.

        Returns a very large number if the kernel does not report it.
        """
        try:
            fd = os.open(_MEMINFO_PATH, os.O_RDONLY | os.O_CLOEXEC)
            try:
                facts = os.read(fd, _MEMINFO_BYTES)
            finally:
                os.close(fd)
        except OSError:
            return _UNKNOWN_BYTES
        found = _DIRTY_PATTERN.findall(facts)
        return sum(map(int, found)) * 1024 if len(found) == _DIRTY_LINES else _UNKNOWN_BYTES

    def watch_file_system(self, path: str) -> None:
        """Hold a descriptor open, so that `syncfs` of this path reports every write error since this call.

        The kernel reports an error once per open file. A file that is opened after the report does not get the error.
        """
        self.unwatch_file_system(path)
        self._watched = {**self._watched, path: self.open_dir(path)}

    def unwatch_file_system(self, path: str) -> None:
        watched = dict(self._watched)
        fd = watched.pop(path, None)
        self._watched = watched
        if fd is not None:
            os.close(fd)

    def drop_cached_pages(self, fd: int, start: int, end: int) -> None:
        """Drop the clean cached pages of these bytes, so that the next read is from the disk.

        After a failed sync the cache may show bytes that are not on the disk.
        """
        start -= start % mmap.PAGESIZE
        end += -end % mmap.PAGESIZE
        if start < end:
            os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def replace_file(self, path: str, data: BytesLike, *, sync: bool, sync_content: bool = False) -> None:
        """Replace the content of ``path`` atomically: a reader finds the old or the new content, never a mix.

        With ``sync_content`` this is also true after a power cut. With ``sync`` the new content is durable on return.
        All descriptors are opened first: if none is available, ``path`` is unchanged.
        """
        temporary, folder = path + ".new", os.path.dirname(path)
        folder_fd = self.open_dir(folder) if sync else None
        try:
            fd = self.create(temporary)
            try:
                self.write_all(fd, data, 0)
                if sync or sync_content:
                    self.fsync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, path)
            if folder_fd is not None:
                self.fsync_dir(folder, folder_fd)
        finally:
            if folder_fd is not None:
                self.close(folder_fd)

    # --- names

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name. Raises FileExistsError if the name exists."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, _DIRECTORY_MODE, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    # --- the machine

    def boot_id(self) -> str:
        """The id of this boot of the machine, empty if unknown. A new id means that the page cache was lost."""
        data = self.read_proc(_BOOT_ID_PATH)
        return data.decode("ascii", "replace").strip()

    def read_proc(self, path: str) -> bytes:
        # Files under /proc report a size of 0.
        try:
            with open(path, "rb") as file:
                return file.read(4096)
        except OSError:
            return b""


_FDATASYNC: Final = Files.fdatasync

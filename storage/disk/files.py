"""The one door from the log to the operating system.

Everything that opens, writes, maps, syncs or renames a file goes through one :class:`Files` object, so that tests can
hand in a twin that fills up, breaks, tears writes and forgets what was not synced. Methods raise plain ``OSError``;
the callers turn it into their own errors. All methods may be called from any thread.
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
    from storage.kernel_syncs import KernelSyncs

BytesLike = bytes | bytearray | memoryview

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_MEMORY_FACTS: Final = "/proc/meminfo"
_MEMORY_FACTS_BYTES: Final = 8192
_UNWRITTEN: Final = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)
_UNWRITTEN_COUNT: Final = 2
_UNKNOWN_BYTES: Final = 1 << 62
_FILE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o755


class Files:
    """Real files."""

    # Directories that are held open for `syncfs`.
    _watched: Mapping[str, int] = MappingProxyType({})
    # What gives up space of a data directory on a full disk, and tells whether there was any.
    _reserves: Mapping[str, Callable[[], bool]] = MappingProxyType({})

    # --- opening

    def create(self, path: str) -> int:
        """A new, empty file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)

    def open_write(self, path: str) -> int:
        """An existing or new file, open for reading and writing, its content kept."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def duplicate(self, fd: int) -> int:
        return os.dup(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def lock(self, path: str) -> int | None:
        """A descriptor that holds the lock on ``path`` until it is closed, or None when another process has it."""
        fd = self.open_write(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    # --- bytes

    # Write some of the data; the number of bytes that went in. Called once per append, so without a frame of its own.
    pwrite = staticmethod(os.pwrite)

    def write_all(self, fd: int, data: BytesLike, position: int) -> None:
        """Write all of ``data``, however many short writes it takes."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; less only at the end of the file."""
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
        """The whole file, or None when there is none."""
        try:
            fd = self.open_read(path)
        except FileNotFoundError:
            return None
        try:
            return self.pread(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def read_end(self, path: str, size: int) -> bytes | None:
        """The last ``size`` bytes of a file, or None when there is no such file or it is shorter."""
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
        """A view of the page cache from a page boundary on; the map lives as long as a slice of the view does."""
        return memoryview(mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=position))

    def forbid_readahead(self, view: memoryview) -> None:
        """Touching a page of this map reads that page at most: what comes next is fetched by those who may wait."""
        mapped = view.obj
        assert isinstance(mapped, mmap.mmap)
        mapped.madvise(mmap.MADV_RANDOM)

    # The first cold reader pays for loading ctypes, not every start.

    def is_cached(self, fd: int, start: int, end: int) -> bool | None:
        """Whether these bytes of the file are all in memory; None when the kernel only tells it of maps."""
        from storage.residency import is_cached

        self.is_cached = is_cached  # type: ignore[method-assign]  # once per read, so without this frame from now on
        return is_cached(fd, start, end)

    def is_resident(self, view: memoryview) -> bool:
        """Whether the pages under a slice of a map are all in memory."""
        from storage.residency import is_resident

        return is_resident(view)

    # --- length

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def is_plain(self, path: str) -> bool:
        """Whether it is an ordinary file: no link to one, no folder, nothing that a reader could wait for."""
        return stat.S_ISREG(os.lstat(path).st_mode)

    def modified_ms_of(self, path: str) -> int:
        """When it was written to last, by the machine's clock."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def device_of(self, path: str) -> int:
        """Which file system it is on: those of two paths are the same or not."""
        return os.stat(path).st_dev

    def fallocate(self, fd: int, position: int, size: int) -> None:
        """Reserve zeroed space, so that a later write cannot meet a full disk; it may be written to meanwhile.

        Raises ``OSError`` with EOPNOTSUPP where the file system cannot do that.
        """
        from storage.allocation import fallocate  # loads ctypes, in the thread that needs it first

        fallocate(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file; only above every byte that a slice of a map may cover (a read there is a fatal signal)."""
        os.ftruncate(fd, size)

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the volume that ``path`` is on, and how many of them this process may still use."""
        facts = os.statvfs(path)
        return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize

    def add_reserve(self, data_dir: str, give_up: Callable[[], bool]) -> None:
        self._reserves = {**self._reserves, data_dir: give_up}

    def remove_reserve(self, data_dir: str) -> None:
        self._reserves = {one: give_up for one, give_up in self._reserves.items() if one != data_dir}

    def make_way(self, path: str) -> bool:
        """Give up some of the space that is kept in the data directory of ``path``; False when nothing is left."""
        return any(give_up() for data_dir, give_up in self._reserves.items() if path.startswith(data_dir + os.sep))

    # --- durability

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def kernel_syncs(self) -> KernelSyncs | None:
        """Syncs that need no thread. None where the system has none, or ``fdatasync`` has been replaced by another."""
        if type(self).fdatasync is not _FDATASYNC:
            return None
        from storage.kernel_syncs import KernelSyncs  # loads ctypes

        try:
            return KernelSyncs()
        except OSError:
            return None

    def open_dir(self, path: str) -> int:
        """A descriptor for :meth:`fsync_dir`, taken before the work that must not end without a sync."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def fsync_dir(self, path: str, fd: int | None = None) -> None:
        """Make names created, renamed or removed in ``path`` survive a power cut; ``fd`` is the directory if open."""
        if fd is not None:
            self.fsync(fd)
            return
        fd = self.open_dir(path)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def syncfs(self, path: str) -> None:
        """Make everything durable that was written to the file system of ``path``, by anybody."""
        import ctypes  # loaded when it is needed: no other door here leads to this call

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
        """Bytes in this machine's page cache that are not on a disk yet: the most that :meth:`syncfs` has to write.

        Where the kernel does not say it, as many as there can be.
        """
        try:
            fd = os.open(_MEMORY_FACTS, os.O_RDONLY | os.O_CLOEXEC)
            try:
                facts = os.read(fd, _MEMORY_FACTS_BYTES)
            finally:
                os.close(fd)
        except OSError:
            return _UNKNOWN_BYTES
        found = _UNWRITTEN.findall(facts)
        return sum(map(int, found)) * 1024 if len(found) == _UNWRITTEN_COUNT else _UNKNOWN_BYTES

    def watch_file_system(self, path: str) -> None:
        """From now on `syncfs` of this path fails for every write that failed since, also if others asked before.

        The kernel tells of it once for each open file. One that is opened later is not told of what others know.
        """
        self.unwatch_file_system(path)
        self._watched = {**self._watched, path: self.open_dir(path)}

    def unwatch_file_system(self, path: str) -> None:
        watched = dict(self._watched)
        fd = watched.pop(path, None)
        self._watched = watched
        if fd is not None:
            os.close(fd)

    def forget(self, fd: int, start: int, end: int) -> None:
        """Drop the cached pages of these bytes that are not waiting to be written; they are read from the disk again.

        After a failed sync the cache may show bytes that the disk does not have.
        """
        start -= start % mmap.PAGESIZE
        end += -end % mmap.PAGESIZE
        if start < end:
            os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def replace_file(self, path: str, data: BytesLike, *, sync: bool, sync_content: bool = False) -> None:
        """Put ``data`` in the place of ``path`` at once: a reader finds the old or the new content, never a mix.

        After a power cut that holds with ``sync_content``; with ``sync`` it is the new content when this has returned.
        All descriptors are taken first: without them nothing has changed.
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
        """Changes when the machine restarts, so the page cache was lost; empty when the system does not tell."""
        data = self.read_proc(_BOOT_ID_PATH)
        return data.decode("ascii", "replace").strip()

    def read_proc(self, path: str) -> bytes:
        # Files under /proc say they are empty, so their size is no guide.
        try:
            with open(path, "rb") as file:
                return file.read(4096)
        except OSError:
            return b""


_FDATASYNC: Final = Files.fdatasync

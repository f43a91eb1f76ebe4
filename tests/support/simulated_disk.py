"""A disk in memory behind :class:`storage.disk.files.Files`, which loses what a real one may lose.

Written bytes are in the page cache; a sync moves a file's bytes to the platter; a new, renamed or removed name is
durable only after a sync of its folder. A kill keeps the cache. A power cut keeps each page that was not synced, or
loses it, or tears it at a sector, and takes over the names in the order they were made up to some point. All by a
seeded chance, so that a run can be repeated. One thread.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from random import Random
from typing import Final

from storage.disk.files import BytesLike, Files
from tests.support.simulated_nodes import (
    PAGE_BYTES,
    MetadataJournal,
    Node,
    SimulatedFile,
    SimulatedFolder,
    pages_of,
)

_FD_FIRST: Final = 1000
# Paths whose parts are remembered: every call looks one up.
_PATHS_MAX: Final = 10_000
# How much of what was not synced a power cut keeps and tears; the ends are as likely as the middle.
_KEPT_SHARES: Final = (0.0, 0.3, 0.7, 1.0)
_TORN_SHARES: Final = (0.0, 0.0, 0.3)

# What a disk without a bound says of its size.
UNBOUNDED_BYTES = 1 << 50


class Crashed(BaseException):
    """The process is gone. No handler for ordinary errors may see it."""


class SimulatedDisk:
    """The machine: what is in its cache and on its platter, and what is about to go wrong."""

    def __init__(self, boot: int = 1) -> None:
        self.boot = boot
        self.root = SimulatedFolder()
        self.journal = MetadataJournal()
        # Every call counts; the call with this number does not return.
        self.call_count = 0
        self.crash_at: int | None = None
        self.is_down = False
        self.trace: list[str] | None = None
        self.locked: set[int] = set()
        # Bytes that may still get a place on the platter; None: as many as wanted.
        self.free_bytes: int | None = None
        self._failures: dict[str, list[int]] = defaultdict(list)
        self._short_write: int | None = None
        self._is_short_write_an_error = False

    # --- what the test asks for

    def fail_next(self, operation: str, error_number: int = errno.EIO, *, after: int = 0) -> None:
        """Let the call after the next ``after`` ones of this name fail, once. A failed sync gives up its pages."""
        self._failures[operation].extend([0] * after)
        self._failures[operation].append(error_number)

    def repair(self) -> None:
        """No call fails any more."""
        self._failures.clear()
        self._short_write = None

    def shorten_next_write(self, size_bytes: int, *, is_error: bool = False) -> None:
        """The next write puts in at most ``size_bytes``, and fails then if it is told to."""
        self._short_write, self._is_short_write_an_error = size_bytes, is_error

    def write_back(self, chance: Random) -> None:
        """What a kernel does by itself: some pages of some files, and the first steps of the journal."""
        self.journal.commit_first(chance.randint(0, len(self.journal)))
        for file in self.files():
            if file.dirty and chance.random() < 0.5:
                file.write_back([page for page in file.loose_pages() if chance.random() < 0.5])

    def files(self) -> list[SimulatedFile]:
        """Every file that has a name."""
        found: list[SimulatedFile] = []
        folders = [self.root]
        while folders:
            for node in folders.pop().names.values():
                if isinstance(node, SimulatedFile):
                    found.append(node)
                else:
                    folders.append(node)
        return found

    @property
    def is_lying(self) -> bool:
        """Whether a failed sync has left pages in the cache that are not what the platter holds."""
        return any(file.lost for file in self.files())

    def file(self, path: str) -> SimulatedFile:
        node = self.find(path)
        assert isinstance(node, SimulatedFile)
        return node

    def restarted(self) -> SimulatedDisk:
        """After a kill: the same machine, its cache whole, for the next process."""
        self.is_down = False
        self.crash_at = None
        self.locked.clear()
        self.repair()
        return self

    def after_power_cut(self, chance: Random) -> SimulatedDisk:
        """The machine after the next boot. The old one must not be used any more."""
        kept_share, torn_share = chance.choice(_KEPT_SHARES), chance.choice(_TORN_SHARES)
        count = len(self.journal)
        self.journal.commit_first(chance.choice((0, chance.randint(0, count), count)))
        disk = SimulatedDisk(self.boot + 1)
        disk.free_bytes = self.free_bytes
        survivors: dict[int, Node] = {}

        def survive(node: Node) -> Node:
            found = survivors.get(id(node))
            if found is None:
                if isinstance(node, SimulatedFile):
                    found = node.after_power_cut(chance, kept_share, torn_share)
                else:
                    found = SimulatedFolder()
                    found.names = {name: survive(child) for name, child in node.durable.items()}
                    found.durable = dict(found.names)
                survivors[id(node)] = found
            return found

        root = survive(self.root)
        assert isinstance(root, SimulatedFolder)
        disk.root = root
        return disk

    # --- for the files

    def enter(self, operation: str, about: str = "") -> bool:
        """Count a call. True: the machine stops inside it, so do half of the work and call :meth:`stop`."""
        if self.is_down:
            raise Crashed
        self.call_count += 1
        if self.trace is not None:
            self.trace.append(f"{operation} {about}")
        if self.call_count == self.crash_at:
            if operation == "pwrite":
                return True
            self.stop()
        failures = self._failures.get(operation)
        if failures:
            error_number = failures.pop(0)
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
        return False

    def stop(self) -> None:
        self.is_down = True
        raise Crashed

    def written_part(self, data: memoryview) -> tuple[memoryview, bool]:
        """What of a write goes in, and whether it fails after that."""
        size, self._short_write = self._short_write, None
        return (data, False) if size is None else (data[:size], self._is_short_write_an_error)

    def take_space(self, file: SimulatedFile, start: int, end: int) -> None:
        if self.free_bytes is None:
            return
        size = PAGE_BYTES * sum(page not in file.blocks for page in pages_of(start, end))
        if size > self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free_bytes -= size

    def give_space(self, block_count: int) -> None:
        if self.free_bytes is not None:
            self.free_bytes += PAGE_BYTES * block_count

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _names_in(path):
            if not isinstance(node, SimulatedFolder):
                return None
            node = node.names.get(name)
        return node

    def folder(self, path: str) -> SimulatedFolder:
        node = self.find(path)
        if not isinstance(node, SimulatedFolder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def link(self, path: str, node: Node) -> None:
        parent, name = os.path.split(path)
        folder = self.folder(parent)
        folder.names[name] = node
        self.journal.add(folder, partial(folder.durable.__setitem__, name, node))

    def unlink(self, path: str, kind: type) -> None:
        parent, name = os.path.split(path)
        folder = self.folder(parent)
        node = folder.names.get(name)
        if not isinstance(node, kind):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, SimulatedFolder) and node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        del folder.names[name]
        self.journal.add(folder, lambda: void(folder.durable.pop(name, None)))
        # Links are made within a folder only, so another name of the file would be here.
        if isinstance(node, SimulatedFile) and all(other is not node for other in folder.names.values()):
            self.give_space(len(node.blocks))

    def rename(self, source: str, target: str) -> None:
        parent, name = os.path.split(source)
        target_parent, target_name = os.path.split(target)
        assert parent == target_parent, "the log renames within a folder only"
        folder = self.folder(parent)
        node = folder.names.pop(name, None)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        replaced = folder.names.get(target_name)
        if isinstance(replaced, SimulatedFile):
            self.give_space(len(replaced.blocks))
        folder.names[target_name] = node

        def apply() -> None:
            folder.durable.pop(name, None)
            folder.durable[target_name] = node

        self.journal.add(folder, apply)

    def sync_file(self, file: SimulatedFile) -> None:
        self.journal.commit(file)
        file.sync()

    def sync_everything(self) -> None:
        self.journal.commit_first(len(self.journal))
        for file in self.files():
            file.sync()

    def give_up(self) -> None:
        """A sync of the whole file system failed; whatever was dirty is lost, and nobody will say so again."""
        for file in self.files():
            file.give_up_dirty()


@lru_cache(maxsize=_PATHS_MAX)
def _names_in(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def void(_: object) -> None:
    pass


class SimulatedFiles(Files):
    """The door of one process to a simulated disk; what the base class builds out of these calls stays as it is."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self._open: dict[int, SimulatedFile] = {}
        self._next_fd = _FD_FIRST
        # The largest number of files open at once, for tests that count descriptors.
        self.open_max = 0

    @property
    def open_count(self) -> int:
        return len(self._open)

    # --- opening

    def create(self, path: str) -> int:
        self.disk.enter("create", path)
        node = self.disk.find(path)
        if isinstance(node, SimulatedFile):
            self._cut(node, 0)
            return self._descriptor(node)
        return self._new(path)

    def create_private(self, path: str) -> int:
        self.disk.enter("create_private", path)
        if self.disk.find(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return self._new(path)

    def open_write(self, path: str) -> int:
        self.disk.enter("open_write", path)
        node = self.disk.find(path)
        return self._descriptor(node) if isinstance(node, SimulatedFile) else self._new(path)

    def open_read(self, path: str) -> int:
        self.disk.enter("open_read", path)
        node = self.disk.find(path)
        if not isinstance(node, SimulatedFile):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._descriptor(node)

    def duplicate(self, fd: int) -> int:
        self.disk.enter("duplicate")
        return self._descriptor(self._file(fd))

    def close(self, fd: int) -> None:
        self.disk.enter("close")
        self._file(fd)
        del self._open[fd]
        self.disk.locked.discard(fd)

    def lock(self, path: str) -> int | None:
        fd = self.open_write(path)
        if self.disk.locked:
            self.close(fd)
            return None
        self.disk.locked.add(fd)
        return fd

    def _new(self, path: str) -> int:
        if self.disk.free_bytes is not None and self.disk.free_bytes < PAGE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file = SimulatedFile()
        self.disk.link(path, file)
        return self._descriptor(file)

    def _descriptor(self, file: SimulatedFile) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = file
        self.open_max = max(self.open_max, len(self._open))
        return fd

    def _file(self, fd: int) -> SimulatedFile:
        file = self._open.get(fd)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    # --- bytes

    def pwrite(self, fd: int, data: BytesLike, position: int) -> int:  # type: ignore[override]
        is_crash = self.disk.enter("pwrite")
        file, view = self._file(fd), memoryview(data)
        if is_crash:
            # A process dies between two pages of its write.
            end = (position // PAGE_BYTES + 1) * PAGE_BYTES
            file.write(view[: max(0, min(end - position, len(view) - 1))], position)
            self.disk.stop()
        view, is_error = self.disk.written_part(view)
        self.disk.take_space(file, position, position + len(view))
        file.write(view, position)
        if is_error:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return len(view)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.disk.enter("pread")
        return self._file(fd).read(size, position)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        self.disk.enter("preadv")
        file, start = self._file(fd), position
        for buffer in buffers:
            piece = file.read(len(buffer), position)
            memoryview(buffer)[: len(piece)] = piece
            position += len(piece)
        return position - start

    def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
        self.disk.enter("map_readonly")
        file = self._file(fd)
        if size <= 0 or position % PAGE_BYTES:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        assert position + size <= file.size, "a map behind the end of the file is a fatal signal"
        return file.map(position, size)

    def forbid_readahead(self, view: memoryview) -> None:
        assert isinstance(view.obj, bytearray)

    def is_cached(self, fd: int, start: int, end: int) -> bool | None:
        return True

    def is_resident(self, view: memoryview) -> bool:
        return True

    # --- length

    def size(self, fd: int) -> int:
        self.disk.enter("size")
        return self._file(fd).size

    def size_of(self, path: str) -> int:
        self.disk.enter("size_of", path)
        node = self.disk.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node.size if isinstance(node, SimulatedFile) else 0

    def is_plain(self, path: str) -> bool:
        node = self.disk.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return isinstance(node, SimulatedFile)

    def modified_ms_of(self, path: str) -> int:
        """Nothing of what is simulated depends on the time of day."""
        self.disk.enter("modified_ms_of", path)
        if self.disk.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return 0

    def device_of(self, path: str) -> int:
        """There is one file system."""
        self.disk.enter("device_of", path)
        if self.disk.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return 1

    def fallocate(self, fd: int, position: int, size: int) -> None:
        self.disk.enter("fallocate")
        file = self._file(fd)
        end = position + size
        self.disk.take_space(file, position, end)
        before = file.size
        file.grow(end)
        if end > before:
            self.disk.journal.add(file, lambda: file.set_platter_size(max(end, len(file.platter))))

    def truncate(self, fd: int, size: int) -> None:
        self.disk.enter("truncate")
        self._cut(self._file(fd), size)

    def space(self, path: str) -> tuple[int, int]:
        free_bytes = self.disk.free_bytes
        return UNBOUNDED_BYTES, UNBOUNDED_BYTES if free_bytes is None else free_bytes

    def _cut(self, file: SimulatedFile, size: int) -> None:
        before = len(file.blocks)
        file.cut(size)
        self.disk.give_space(before - len(file.blocks))
        file.cuts.append(size)
        self.disk.journal.add(file, file.apply_cut)

    # --- durability

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def kernel_syncs(self) -> None:
        return None

    def _sync(self, operation: str, fd: int) -> None:
        file = self._file(fd)
        try:
            self.disk.enter(operation)
        except OSError:
            file.give_up_dirty()
            raise
        self.disk.sync_file(file)

    def open_dir(self, path: str) -> int:
        self.disk.enter("open_dir", path)
        self.disk.folder(path)
        return self._descriptor(SimulatedFile())

    def fsync_dir(self, path: str, fd: int | None = None) -> None:
        self.disk.enter("fsync_dir", path)
        folder = self.disk.folder(path)
        self.disk.journal.commit(folder)

    def drop_cached_pages(self, fd: int, start: int, end: int) -> None:
        self.disk.enter("drop_cached_pages")
        self._file(fd).evict_lost(pages_of(start, end))

    def syncfs(self, path: str) -> None:
        try:
            self.disk.enter("syncfs", path)
        except OSError:
            self.disk.give_up()
            raise
        self.disk.sync_everything()

    def unwritten_bytes(self) -> int:
        """So many that a few files are synced one by one; the number of files alone decides."""
        return 1 << 40

    def watch_file_system(self, path: str) -> None:
        """Nobody else syncs this disk."""

    def unwatch_file_system(self, path: str) -> None:
        pass

    # --- names

    def rename(self, source: str, target: str) -> None:
        self.disk.enter("rename", f"{source} {target}")
        self.disk.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.disk.enter("link", f"{source} {target}")
        node = self.disk.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if self.disk.find(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        assert os.path.dirname(source) == os.path.dirname(target), "links are made within a folder only"
        self.disk.link(target, node)

    def unlink(self, path: str) -> None:
        self.disk.enter("unlink", path)
        self.disk.unlink(path, SimulatedFile)

    def rmdir(self, path: str) -> None:
        self.disk.enter("rmdir", path)
        self.disk.unlink(path, SimulatedFolder)

    def makedirs(self, path: str) -> None:
        self.disk.enter("makedirs", path)
        made = "/"
        for name in path.split("/"):
            if name:
                made = os.path.join(made, name)
                if self.disk.find(made) is None:
                    self.disk.link(made, SimulatedFolder())

    def listdir(self, path: str) -> list[str]:
        self.disk.enter("listdir", path)
        return list(self.disk.folder(path).names)

    def exists(self, path: str) -> bool:
        self.disk.enter("exists", path)
        return self.disk.find(path) is not None

    # --- the machine

    def boot_id(self) -> str:
        return f"00000000-0000-0000-0000-{self.disk.boot:012d}"

    def read_proc(self, path: str) -> bytes:
        return b""

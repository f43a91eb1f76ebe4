"""Crash-safe writing of event files: a crash at any moment leaves complete files and a correct position.

A round writes the events of some topics in these steps:

1. Write all files under temporary names.
2. Sync the files.
3. Rename the files to their final names.
4. Sync the directories.
5. Write the position of each topic.

So every readable event below a topic's position has a file. After a crash, events above the position may have files
too. These files are complete and equal to those that the next round writes.

The folder of a new group is written under a temporary name, so one rename publishes up to a thousand files. If a round
has more than SYNCED_EACH_MAX files, each file system in use is synced as a whole. Fewer files are synced one by one.

Writing waits for the disk and runs Python code for each event, so the server does it in a worker process. A lock on the
directory ensures that only one process writes: a process that was killed may still be alive until its system call
returns.
"""

import errno
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

from crc32c import crc32c

from kwire.streams.event_store.files.layout import (
    CONFIG,
    DATA,
    DELETED_SEPARATOR,
    LOCK,
    OWN,
    OWNER,
    POSITIONS,
    UNFINISHED_END,
    FileEvent,
    config_path,
    deleted_name,
    event_folder,
    event_name,
    event_text,
    position_path,
)
from storage.disk.files import Files

# Up to this many files are synced one by one. More files are synced with one sync of their file system.
SYNCED_EACH_MAX = 16
# Files removed in one call. The limit prevents long delays of other work.
REMOVALS_PER_CALL = 5000


# The longest wait for another process that has locked the directory, and the interval between two attempts to lock it.
LOCK_SECONDS = 10.0
LOCK_RETRY_SECONDS = 0.01

P = ParamSpec("P")
R = TypeVar("R")


class WrongOwner(ValueError):
    """The directory belongs to another server or to an export."""


class FolderConflict(ValueError):
    """A topic cannot have files: its name is too long, or files under its name were not written from this topic."""


class Position(NamedTuple):
    """The position of a topic: all readable events below `next_offset` have files. `topic_id` is in hexadecimal."""

    topic_id: str
    next_offset: int


class PickledEvents:
    """Events that are sent to another process. Each batch is pickled when it is added.

    Pickling all batches at once would hold the interpreter lock for too long.
    """

    __slots__ = ("_count", "_pickled")

    def __init__(self) -> None:
        self._pickled: list[bytes] = []
        self._count = 0

    def add(self, events: Sequence[FileEvent]) -> None:
        self._pickled.append(pickle.dumps([tuple(event) for event in events]))
        self._count += len(events)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FileEvent]:
        for pickled in self._pickled:
            for fields in pickle.loads(pickled):
                yield FileEvent._make(fields)


class TopicPart(NamedTuple):
    """The events that a round adds to one topic.

    `config` is the content of the new configuration file, or None if the file does not change.
    """

    topic: str
    position: Position
    events: PickledEvents | Sequence[FileEvent]
    config: bytes | None = None


# --- the directory


@contextmanager
def locked(files: Files, root: str, *, is_waiting: bool = True) -> Iterator[None]:
    """Hold the lock of the directory. Raises OSError if another process holds it for too long."""
    path = os.path.join(root, LOCK)
    deadline = time.monotonic() + (LOCK_SECONDS if is_waiting else 0)
    while (fd := files.lock(path)) is None:
        if time.monotonic() >= deadline:
            raise OSError(errno.EBUSY, "another process writes to the directory", root)
        time.sleep(LOCK_RETRY_SECONDS)
    try:
        yield
    finally:
        files.close(fd)


def with_lock(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` with the lock of the directory held. The first two of `args` must be `files` and `root`."""
    files, root = args[:2]
    assert isinstance(files, Files)
    assert isinstance(root, str)
    with locked(files, root):
        return function(*args, **kwargs)


def make_root(files: Files, root: str) -> None:
    for folder in (DATA, CONFIG, POSITIONS):
        files.makedirs(os.path.join(root, folder))


def open_root(files: Files, root: str, owner: str) -> dict[str, Position | None]:
    """Create the directory for `owner`, or check that an existing directory belongs to `owner`; raises WrongOwner.

    Returns the position of each topic. The position is None if its file cannot be read.
    """
    make_root(files, root)
    raw = files.read_file(os.path.join(root, OWNER))
    if raw is None:
        # Sync all parent folders before the owner file is written. If the owner file exists after a power failure, all
        # these folders exist too.
        for folder in (os.path.join(root, OWN), *_upwards(root)):
            with suppress(PermissionError):
                files.fsync_dir(folder)
        files.replace_file(os.path.join(root, OWNER), _json({"owner": owner}), sync=True)
    elif _object(raw).get("owner") != owner:
        raise WrongOwner(
            f"{root} belongs to another server or to an export: choose another directory, or remove its {OWN} folder "
            "and its event files"
        )
    for folder in (CONFIG, POSITIONS):
        for name in files.listdir(os.path.join(root, folder)):
            if name.endswith(UNFINISHED_END):
                files.unlink(os.path.join(root, folder, name))
    # A killed server may have stored a first position whose name is not synced. Without it, files that are written
    # from now on would not be recognised as those of their topic after a power cut.
    files.fsync_dir(os.path.join(root, POSITIONS))
    return dict(_positions(files, root))


def open_root_locked(files: Files, root: str, owner: str) -> dict[str, Position | None]:
    """Call `open_root` while holding the lock of the directory."""
    make_root(files, root)
    with locked(files, root):
        return open_root(files, root, owner)


def _check_exists(files: Files, root: str) -> None:
    """Raise FileNotFoundError if the directory is gone.

    If its disk is unmounted, nothing must be written to the folder at the mount point.
    """
    if not files.exists(os.path.join(root, OWNER)):
        raise FileNotFoundError(errno.ENOENT, "the directory was removed, unmounted or replaced", root)


def _upwards(path: str) -> Iterator[str]:
    yield path
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _positions(files: Files, root: str) -> Iterator[tuple[str, Position | None]]:
    for name in sorted(files.listdir(os.path.join(root, POSITIONS))):
        if name.endswith(".json"):
            topic = name.removesuffix(".json")
            yield topic, read_position(files, root, topic)


def read_position(files: Files, root: str, topic: str) -> Position | None:
    """Return the stored position of a topic; None if it is missing or damaged.

    The position has a CRC, because its topic id decides whether files are removed. Positions that older releases wrote
    have no CRC and are accepted.
    """
    facts = _object(files.read_file(os.path.join(root, position_path(topic))) or b"")
    topic_id, next_offset = facts.get("topicId"), facts.get("next")
    if not isinstance(topic_id, str) or type(next_offset) is not int or next_offset < 0:
        return None
    position = Position(topic_id, next_offset)
    return position if facts.get("crc32c", _crc(position)) == _crc(position) else None


# --- topics


def begin_topic(files: Files, root: str, topic: str, position: Position) -> None:
    """Store the first position of a topic. Raises FolderConflict if the topic's folder already exists."""
    _check_exists(files, root)
    if files.exists(os.path.join(root, DATA, topic)):
        raise FolderConflict(f"the folder {DATA}/{topic} was not written from this topic: move it elsewhere")
    files.replace_file(os.path.join(root, position_path(topic)), _encode(position), sync=True)


def remove_topic(files: Files, root: str, topic: str, topic_id: str) -> None:
    """Rename the folder of a deleted topic, and remove its configuration file and its position.

    `remove_some` removes the files in the renamed folder later.
    """
    _check_exists(files, root)
    data = os.path.join(root, DATA)
    folder, gone = os.path.join(data, topic), os.path.join(data, deleted_name(topic, topic_id))
    number = 0
    while files.exists(gone):
        number += 1
        gone = os.path.join(data, f"{deleted_name(topic, topic_id)}.{number}")
    if files.exists(folder):
        files.rename(folder, gone)
    files.fsync_dir(data)
    # The position is removed last: if it still exists after a crash, the next start repeats the removal.
    unfinished = [_unfinished(path, topic) for path in (config_path(topic), position_path(topic))]
    for path in (*unfinished, config_path(topic), position_path(topic)):
        with suppress(FileNotFoundError):
            files.unlink(os.path.join(root, path))
        files.fsync_dir(os.path.dirname(os.path.join(root, path)))


def remove_some(files: Files, root: str) -> bool:
    """Remove up to REMOVALS_PER_CALL files of deleted topics. Returns whether there may be more."""
    data = os.path.join(root, DATA)
    left = REMOVALS_PER_CALL
    for name in files.listdir(data):
        if DELETED_SEPARATOR in name:
            left = _remove(files, os.path.join(data, name), left)
            if left <= 0:
                return True
    return False


def _remove_all(files: Files, path: str) -> None:
    if files.exists(path):
        while _remove(files, path, REMOVALS_PER_CALL) <= 0:
            pass


def _remove(files: Files, path: str, left: int) -> int:
    """Remove a file, or a folder with its content, but at most `left` files. Returns `left` minus the removed files.

    The depth of the recursion is bounded by the depth of a topic's folder.
    """
    try:
        names = files.listdir(path)
    except (NotADirectoryError, FileNotFoundError):
        with suppress(FileNotFoundError):
            files.unlink(path)
        return left - 1
    for name in names:
        if left <= 0:
            return left
        left = _remove(files, os.path.join(path, name), left)
    if left > 0:
        files.rmdir(path)
    return left


# --- rounds


def write_round(files: Files, root: str, parts: Sequence[TopicPart]) -> None:
    """Write the files of these events, and then the positions. After a failure, the call can be repeated."""
    _check_exists(files, root)
    batch = _FileBatch(files, root)
    with batch.closing():
        for part in parts:
            topic = part.topic
            for event in part.events:
                batch.put(
                    event_folder(topic, event),
                    event_name(topic, event.sequence),
                    str(event.sequence),
                    event_text(topic, event),
                )
            if part.config is not None:
                batch.replace(config_path(topic), topic, part.config)
        batch.finish()
    positions = _FileBatch(files, root)
    with positions.closing():
        for part in parts:
            positions.replace(position_path(part.topic), part.topic, _encode(part.position))
        # The renames of positions are not synced. If a power failure undoes a rename, the old position is still there,
        # and the events are written again.
        positions.finish(sync_names=False)


class _FileBatch:
    """A set of files that are written under temporary names and renamed together.

    The temporary names are the same each time, so files that a crash has left are overwritten or removed.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        # By final folder: the folder that files are written to. It is a temporary one if the final folder is new.
        self._target_folders: dict[str, str] = {}
        self._renames: list[tuple[str, str]] = []
        # The first SYNCED_EACH_MAX files stay open, because they are synced one by one if no more files follow.
        self._open: list[int] = []
        self._count = 0
        # By device number: a path on that file system. The folder of a topic may be on another disk.
        self._disks: dict[int, str] = {}

    def put(self, folder: str, name: str, short_name: str, data: bytes) -> None:
        """Write a file. If the folder already exists, the file gets a temporary name that contains `short_name`."""
        written_to = self._target_folders.get(folder) or self._target_folder(folder)
        if written_to == folder:
            path = f"{self._root}/{folder}/.{short_name}{UNFINISHED_END}"
            self._renames.append((path, f"{self._root}/{folder}/{name}"))
        else:
            path = f"{self._root}/{written_to}/{name}"
        files = self._files
        fd = files.create(path)
        self._open.append(fd)
        if files.pwrite(fd, data, 0) != len(data):
            files.write_all(fd, data, 0)
        self._count += 1
        if self._count > SYNCED_EACH_MAX:
            files.close(self._open.pop())

    def replace(self, path: str, short_name: str, data: bytes) -> None:
        """Write a file that may exist. If it already has this content, nothing is written."""
        if self._files.read_file(os.path.join(self._root, path)) != data:
            self.put(os.path.dirname(path), os.path.basename(path), short_name, data)

    def finish(self, *, sync_names: bool = True) -> None:
        """Sync all files, rename them, and sync the directories (unless `sync_names` is False)."""
        if not self._count:
            return
        files, uses_syncfs = self._files, self._count > SYNCED_EACH_MAX
        if uses_syncfs:
            self._sync_disks()
        else:
            for fd in self._open:
                files.fsync(fd)
        for source, target in self._renames:
            files.rename(source, target)
        if sync_names and uses_syncfs:
            self._sync_disks()
        elif sync_names:
            for folder in _with_parents(self._target_folders):
                files.fsync_dir(os.path.join(self._root, folder))

    def _sync_disks(self) -> None:
        for path in self._disks.values():
            self._files.syncfs(path)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the open files when the context ends, even after an error."""
        try:
            yield
        finally:
            while self._open:
                self._files.close(self._open.pop())

    def _target_folder(self, folder: str) -> str:
        """Return the folder that the files of `folder` are written to. If `folder` is new, create a temporary one."""
        files, path, written_to = self._files, os.path.join(self._root, folder), folder
        if not files.exists(path):
            written_to = _unfinished(folder, os.path.basename(folder))
            new = os.path.join(self._root, written_to)
            # An interrupted round may have left files that this round does not write.
            _remove_all(files, new)
            files.makedirs(new)
            self._renames.append((new, path))
        self._target_folders[folder] = written_to
        self._disks.setdefault(files.device_of(os.path.join(self._root, written_to)), os.path.dirname(path))
        return written_to


def _unfinished(path: str, short_name: str) -> str:
    return os.path.join(os.path.dirname(path), f".{short_name}{UNFINISHED_END}")


def _with_parents(folders: Iterable[str]) -> list[str]:
    """Return the folders and all their parents, children first. The parents contain the names of new folders."""
    found: dict[str, None] = {}
    for folder in folders:
        while folder:
            found[folder] = None
            folder = os.path.dirname(folder)
    return [*sorted(found, reverse=True), ""]


def _encode(position: Position) -> bytes:
    return _json({"topicId": position.topic_id, "next": position.next_offset, "crc32c": _crc(position)})


def _crc(position: Position) -> int:
    return int(crc32c(f"{position.topic_id} {position.next_offset}".encode()))


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value) + "\n").encode()


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

"""Writing the files, so that a crash at any moment leaves whole files and a position that is true.

A round writes the events of some topics: all files where nobody finds them, made durable, then given their names, then
the names made durable, and only then the position of each topic. So below its position everything is there; above it
there may be files already, which are whole and the same as those that the next round puts in their place.

A group that is new is written as a folder with another name, and gets its own by one rename for up to a thousand files.
Many files are made durable by one sync of their file system, a few one by one.

All of it waits for the disk and runs Python for each event: it is done beside the server, in a process of its own. One
process at a time: after a kill the old one may live for as long as a call to the disk takes.
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

from kwire.broker.store.files.layout import (
    CONFIG,
    DATA,
    GONE_MARK,
    LOCK,
    OWN,
    OWNER,
    POSITIONS,
    UNFINISHED_END,
    FileEvent,
    config_path,
    event_folder,
    event_name,
    event_text,
    gone_name,
    position_path,
)
from storage.files import Files

# So many files are synced one by one; more by one sync of their file system.
SYNCED_EACH_MAX = 16
# Removed in one call; then others get their turn.
REMOVALS_PER_CALL = 5000


# How long somebody who works in the directory is waited for, and how often it is looked.
LOCK_SECONDS = 10.0
LOCK_LOOK_SECONDS = 0.01

P = ParamSpec("P")
R = TypeVar("R")


class WrongOwner(ValueError):
    """The directory is kept by somebody else."""


class FolderTaken(ValueError):
    """There are files of a topic that were not written from it."""


class Position(NamedTuple):
    """All events below `next_offset` of the topic with this id (in hexadecimal digits) have their files."""

    topic_id: str
    next_offset: int


class Portions:
    """Events that are soon handed to another process: each portion was turned into bytes when it came.

    All at once would hold up every thread of the server for as long as it takes.
    """

    __slots__ = ("_count", "_folded")

    def __init__(self) -> None:
        self._folded: list[bytes] = []
        self._count = 0

    def add(self, events: Sequence[FileEvent]) -> None:
        self._folded.append(pickle.dumps([tuple(event) for event in events]))
        self._count += len(events)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FileEvent]:
        for folded in self._folded:
            for fields in pickle.loads(folded):
                yield FileEvent._make(fields)


class TopicPart(NamedTuple):
    """What a round adds to one topic. `config`: the file that describes it, None if that stays as it is."""

    topic: str
    position: Position
    events: Portions | Sequence[FileEvent]
    config: bytes | None = None


# --- the directory


@contextmanager
def locked(files: Files, root: str, *, is_waiting: bool = True) -> Iterator[None]:
    """Alone in the directory; raises OSError if somebody else stays in it."""
    path = os.path.join(root, LOCK)
    deadline = time.monotonic() + (LOCK_SECONDS if is_waiting else 0)
    while (fd := files.lock(path)) is None:
        if time.monotonic() >= deadline:
            raise OSError(errno.EBUSY, "another process writes there", root)
        time.sleep(LOCK_LOOK_SECONDS)
    try:
        yield
    finally:
        files.close(fd)


def alone(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call one of the functions below, alone in the directory; its first arguments are `files` and `root`."""
    files, root = args[:2]
    assert isinstance(files, Files)
    assert isinstance(root, str)
    with locked(files, root):
        return function(*args, **kwargs)


def make_root(files: Files, root: str) -> None:
    for folder in (DATA, CONFIG, POSITIONS):
        files.makedirs(os.path.join(root, folder))


def open_root(files: Files, root: str, owner: str) -> dict[str, Position | None]:
    """Make it the directory of this `owner`, or see to it that it is; raises WrongOwner.

    How far each topic has got; None: it cannot be told.
    """
    make_root(files, root)
    raw = files.read_file(os.path.join(root, OWNER))
    if raw is None:
        # Once the owner is noted, all folders up to here are there after a power cut too.
        for folder in (os.path.join(root, OWN), *_upwards(root)):
            with suppress(PermissionError):
                files.fsync_dir(folder)
        files.replace_file(os.path.join(root, OWNER), _json({"owner": owner}), sync=True)
    elif _object(raw).get("owner") != owner:
        raise WrongOwner(
            f"{root} is kept by another server, or by an export: choose another directory, or remove its {OWN} folder "
            "and the files it is about"
        )
    for folder in (CONFIG, POSITIONS):
        for name in files.listdir(os.path.join(root, folder)):
            if name.endswith(UNFINISHED_END):
                files.unlink(os.path.join(root, folder, name))
    return dict(_positions(files, root))


def open_root_alone(files: Files, root: str, owner: str) -> dict[str, Position | None]:
    """The same, while nobody else is in it."""
    make_root(files, root)
    with locked(files, root):
        return open_root(files, root, owner)


def _check_there(files: Files, root: str) -> None:
    """A disk that was taken away must not be replaced by a folder in the place where it was."""
    if not files.exists(os.path.join(root, OWNER)):
        raise FileNotFoundError(errno.ENOENT, "the directory is gone, or not the one it was", root)


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
    """None: it is missing or damaged. Files are removed on the strength of a topic id, so it has a CRC; one that an
    older release wrote has none."""
    facts = _object(files.read_file(os.path.join(root, position_path(topic))) or b"")
    topic_id, next_offset = facts.get("topicId"), facts.get("next")
    if not isinstance(topic_id, str) or type(next_offset) is not int or next_offset < 0:
        return None
    position = Position(topic_id, next_offset)
    return position if facts.get("crc32c", _crc(position)) == _crc(position) else None


# --- topics


def begin_topic(files: Files, root: str, topic: str, position: Position) -> None:
    """Note whose files they will be, before there are any. Raises FolderTaken."""
    _check_there(files, root)
    if files.exists(os.path.join(root, DATA, topic)):
        raise FolderTaken(f"{DATA}/{topic} was not written from this topic: move it away")
    files.replace_file(os.path.join(root, position_path(topic)), _encode(position), sync=True)


def remove_topic(files: Files, root: str, topic: str, topic_id: str) -> None:
    """Let the files of a deleted topic go: at once out of the way, then little by little (`remove_some`)."""
    _check_there(files, root)
    data = os.path.join(root, DATA)
    folder, gone = os.path.join(data, topic), os.path.join(data, gone_name(topic, topic_id))
    number = 0
    while files.exists(gone):
        number += 1
        gone = os.path.join(data, f"{gone_name(topic, topic_id)}.{number}")
    if files.exists(folder):
        files.rename(folder, gone)
    files.fsync_dir(data)
    # The position is the last: as long as it is there, all this is done again after a crash.
    unfinished = [_unfinished(path, topic) for path in (config_path(topic), position_path(topic))]
    for path in (*unfinished, config_path(topic), position_path(topic)):
        with suppress(FileNotFoundError):
            files.unlink(os.path.join(root, path))
        files.fsync_dir(os.path.dirname(os.path.join(root, path)))


def remove_some(files: Files, root: str) -> bool:
    """Remove some files of topics that are gone; whether there are more."""
    data = os.path.join(root, DATA)
    left = REMOVALS_PER_CALL
    for name in files.listdir(data):
        if GONE_MARK in name:
            left = _remove(files, os.path.join(data, name), left)
            if left <= 0:
                return True
    return False


def _remove_all(files: Files, path: str) -> None:
    if files.exists(path):
        while _remove(files, path, REMOVALS_PER_CALL) <= 0:
            pass


def _remove(files: Files, path: str, left: int) -> int:
    """Remove a folder with all that is in it, or a file; how many more may be removed. The depth is that of a topic."""
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
    """Write the files of these events, then the positions. Done again after a failure, it comes to the same."""
    _check_there(files, root)
    writing = _Writing(files, root)
    with writing.ended():
        for part in parts:
            topic = part.topic
            for event in part.events:
                writing.put(
                    event_folder(topic, event),
                    event_name(topic, event.sequence),
                    str(event.sequence),
                    event_text(topic, event),
                )
            if part.config is not None:
                writing.replace(config_path(topic), topic, part.config)
        writing.finish()
    moved = _Writing(files, root)
    with moved.ended():
        for part in parts:
            moved.replace(position_path(part.topic), part.topic, _encode(part.position))
        # Should the name be lost, the old position is there, and the round is written again.
        moved.finish(sync_names=False)


class _Writing:
    """Files that get their names together. Before that none of them can be found.

    What a crash leaves has the same name the next time: it is written over, or removed.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        # By folder: the one that its files are written to, which is another one as long as it is new.
        self._places: dict[str, str] = {}
        self._renames: list[tuple[str, str]] = []
        # The first ones stay open: if there are no others, they are synced one by one.
        self._open: list[int] = []
        self._count = 0
        # A path on each file system there is: somebody may have put a topic on another disk.
        self._disks: dict[int, str] = {}

    def put(self, folder: str, name: str, short_name: str, data: bytes) -> None:
        """`short_name` is what it is called meanwhile, in a folder that is there already."""
        place = self._places.get(folder) or self._place(folder)
        if place == folder:
            path = f"{self._root}/{folder}/.{short_name}{UNFINISHED_END}"
            self._renames.append((path, f"{self._root}/{folder}/{name}"))
        else:
            path = f"{self._root}/{place}/{name}"
        files = self._files
        fd = files.create(path)
        self._open.append(fd)
        if files.pwrite(fd, data, 0) != len(data):
            files.write_all(fd, data, 0)
        self._count += 1
        if self._count > SYNCED_EACH_MAX:
            files.close(self._open.pop())

    def replace(self, path: str, short_name: str, data: bytes) -> None:
        """One that may be there already, with this content or another."""
        if self._files.read_file(os.path.join(self._root, path)) != data:
            self.put(os.path.dirname(path), os.path.basename(path), short_name, data)

    def finish(self, *, sync_names: bool = True) -> None:
        if not self._count:
            return
        files, is_whole = self._files, self._count > SYNCED_EACH_MAX
        if is_whole:
            self._sync_disks()
        else:
            for fd in self._open:
                files.fsync(fd)
        for source, target in self._renames:
            files.rename(source, target)
        if sync_names and is_whole:
            self._sync_disks()
        elif sync_names:
            for folder in _with_parents(self._places):
                files.fsync_dir(os.path.join(self._root, folder))

    def _sync_disks(self) -> None:
        for path in self._disks.values():
            self._files.syncfs(path)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Give the descriptors back, whatever happens."""
        try:
            yield
        finally:
            while self._open:
                self._files.close(self._open.pop())

    def _place(self, folder: str) -> str:
        """Where its files are written to."""
        files, path, place = self._files, os.path.join(self._root, folder), folder
        if not files.exists(path):
            place = _unfinished(folder, os.path.basename(folder))
            new = os.path.join(self._root, place)
            # From a round that was interrupted: this one may have fewer events.
            _remove_all(files, new)
            files.makedirs(new)
            self._renames.append((new, path))
        self._places[folder] = place
        self._disks.setdefault(files.device_of(os.path.join(self._root, place)), os.path.dirname(path))
        return place


def _unfinished(path: str, short_name: str) -> str:
    return os.path.join(os.path.dirname(path), f".{short_name}{UNFINISHED_END}")


def _with_parents(folders: Iterable[str]) -> list[str]:
    """Also the folders that they are in: the names of new ones are there. The root itself comes last."""
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

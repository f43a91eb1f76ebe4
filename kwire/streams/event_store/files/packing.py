"""Packing of old event files: the thousand files of a group are replaced by one compressed file.

Only complete groups are packed, because no events are added to them. The packed file is durable before the single files
are removed. So after a crash, events may be in the packed file and also in single files. Packing the group again
completes the removal.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kwire.streams.event_store.files.layout import (
    DATA,
    PACKED_END,
    UNFINISHED_END,
    FileEvent,
    event_text,
    group_of,
    is_date,
    is_group,
    sequence_in,
)
from kwire.streams.event_store.files.reader import Problem, group_events
from kwire.streams.event_store.files.writer import read_position
from storage.disk.files import Files

LEVEL = 6


class Packed(NamedTuple):
    """A packed group. `file_count` is the number of removed files, `size_bytes` the size of the packed file."""

    path: str
    file_count: int
    size_bytes: int


def groups_to_pack(files: Files, root: str, topic: str, before_date: str) -> list[str]:
    """Return the folders, relative to `root`, of complete groups with dates before `before_date`."""
    position = read_position(files, root, topic)
    if position is None:
        return []
    open_group = int(group_of(position.next_offset + 1))
    folder = f"{DATA}/{topic}"
    return [
        f"{folder}/{date}/{group}"
        for date in sorted(files.listdir(os.path.join(root, folder)) if _exists(files, root, folder) else ())
        if is_date(date) and date < before_date
        for group in sorted(files.listdir(os.path.join(root, folder, date)))
        if is_group(group) and int(group) < open_group
    ]


def pack_group(files: Files, root: str, topic: str, folder: str) -> Packed | Problem:
    """Pack one group. If a file in it is not a valid event, nothing is changed and the problem is returned."""
    path = folder + PACKED_END
    unfinished = os.path.join(root, os.path.dirname(folder), f".{os.path.basename(path)}{UNFINISHED_END}")
    fd = files.create(unfinished)
    try:
        size_bytes = _pack_into(files, fd, topic, group_events(files, root, topic, [path, folder]))
        if isinstance(size_bytes, int):
            files.fsync(fd)
    finally:
        files.close(fd)
    if isinstance(size_bytes, Problem):
        files.unlink(unfinished)
        return size_bytes
    files.rename(unfinished, os.path.join(root, path))
    files.fsync_dir(os.path.dirname(unfinished))
    names = list(_loose_names(files, root, topic, folder))
    for name in names:
        files.unlink(os.path.join(root, folder, name))
    files.rmdir(os.path.join(root, folder))
    return Packed(path, len(names), size_bytes)


def _pack_into(files: Files, fd: int, topic: str, events: Iterable[FileEvent | Problem]) -> int | Problem:
    """Write the compressed events. Returns the compressed size, or the first problem."""
    compressor, size_bytes = zlib.compressobj(LEVEL, wbits=31), 0
    for one in events:
        if isinstance(one, Problem):
            return one
        data = compressor.compress(event_text(topic, one))
        files.write_all(fd, data, size_bytes)
        size_bytes += len(data)
    data = compressor.flush()
    files.write_all(fd, data, size_bytes)
    return size_bytes + len(data)


def _loose_names(files: Files, root: str, topic: str, folder: str) -> Iterator[str]:
    for name in files.listdir(os.path.join(root, folder)):
        # Temporary files that a crash left are not needed: in a complete group, all events have their final files.
        if sequence_in(topic, name) is not None or name.startswith("."):
            yield name


def _exists(files: Files, root: str, path: str) -> bool:
    return files.exists(os.path.join(root, path))

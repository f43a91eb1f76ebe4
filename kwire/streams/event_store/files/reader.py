"""A reader of event files, in the order of the events. Problems with files are yielded as `Problem`s.

A group has the events with a thousand consecutive sequence numbers (see `layout.py`), which give the group its number.
In the folder of each date of its events, a group has a folder, a packed file, or both. Memory is bounded: the reader
holds only the file names of one group, and one event of each folder and packed file of that group.

The content of the directory is not trusted: only regular files are opened, and all sizes are bounded.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kwire.streams.event_store.files.layout import (
    DATA,
    DELETED_SEPARATOR,
    GROUP_EVENTS,
    PACKED_END,
    UNFINISHED_END,
    FileEvent,
    NotAnEventFile,
    date_of,
    event_name,
    group_of,
    is_date,
    is_group,
    parse_event,
    sequence_in,
)
from storage.disk.files import Files

# Largest event that is read. Topics accept only much smaller events.
EVENT_BYTES_MAX = 64 * 1024 * 1024
# Bytes that are read from a packed file, and bytes that are decompressed, in one step.
COMPRESSED_READ_BYTES = 64 * 1024
DECOMPRESSED_STEP_BYTES = 1024 * 1024


class Problem(NamedTuple):
    """The path of a file, relative to the root directory, and what is wrong with the file."""

    path: str
    reason: str


def topics_in(files: Files, root: str) -> list[str]:
    """Return the topics that have files, sorted."""
    return sorted(name for name in names_in(files, os.path.join(root, DATA)) if DELETED_SEPARATOR not in name)


def events_in(files: Files, root: str, topic: str, from_sequence: int = 1) -> Iterator[FileEvent | Problem]:
    """Yield all events with numbers from `from_sequence` on, in order, each once.

    Files and folders that are not groups are yielded as problems before the first event.
    """
    unexpected: list[Problem] = []
    groups = group_sources(files, root, topic, unexpected)
    yield from unexpected
    for number in sorted(groups):
        if (number + 1) * GROUP_EVENTS >= from_sequence:
            for one in group_events(files, root, topic, sorted(groups[number])):
                if isinstance(one, Problem) or one.sequence >= from_sequence:
                    yield one


def group_sources(files: Files, root: str, topic: str, unexpected: list[Problem] | None = None) -> dict[int, list[str]]:
    """Return the folders and packed files of each group. Other files are appended to `unexpected` as problems."""
    groups: dict[int, list[str]] = {}
    others: list[Problem] = [] if unexpected is None else unexpected
    folder = f"{DATA}/{topic}"
    for date in names_in(files, os.path.join(root, folder)):
        if not is_date(date):
            others.append(Problem(f"{folder}/{date}", "its name is not a date"))
            continue
        for name in names_in(files, os.path.join(root, folder, date)):
            group = name.removesuffix(PACKED_END)
            if is_group(group):
                groups.setdefault(int(group), []).append(f"{folder}/{date}/{name}")
            elif not name.endswith(UNFINISHED_END):
                others.append(Problem(f"{folder}/{date}/{name}", "its name is not that of a group of events"))
    return groups


def group_events(files: Files, root: str, topic: str, sources: Sequence[str]) -> Iterator[FileEvent | Problem]:
    """Yield the events of one group in order. An event that is in several folders or packed files is yielded once."""
    iterators = {source: _events_in_source(files, root, topic, source) for source in sources}
    heads: dict[str, FileEvent] = {}
    while True:
        for source in [one for one in iterators if one not in heads]:
            for event in iterators[source]:
                if isinstance(event, FileEvent):
                    heads[source] = event
                    break
                yield event
            else:
                del iterators[source]
        if not heads:
            return
        sequence = min(event.sequence for event in heads.values())
        first, *others = [source for source, event in heads.items() if event.sequence == sequence]
        event = heads.pop(first)
        for source in others:
            if heads.pop(source) != event:
                yield Problem(source, f"its event {topic}-{sequence} differs from the one in {first}")
        yield event


def _events_in_source(files: Files, root: str, topic: str, source: str) -> Iterator[FileEvent | Problem]:
    return (packed_events if source.endswith(PACKED_END) else loose_events)(files, root, topic, source)


def loose_events(files: Files, root: str, topic: str, folder: str) -> Iterator[FileEvent | Problem]:
    """Yield the events in the files of a group's folder, in order."""
    found: list[tuple[int, str]] = []
    for name in names_in(files, os.path.join(root, folder)):
        sequence = sequence_in(topic, name)
        if sequence is not None:
            found.append((sequence, name))
        elif not name.endswith(UNFINISHED_END):
            yield Problem(f"{folder}/{name}", "its name is not that of an event of this topic")
    for sequence, name in sorted(found):
        yield _read(files, root, topic, f"{folder}/{name}", sequence)


def _read(files: Files, root: str, topic: str, path: str, sequence: int) -> FileEvent | Problem:
    whole_path = os.path.join(root, path)
    try:
        if not files.is_plain(whole_path):
            return Problem(path, "it is not a regular file")
        if files.size_of(whole_path) > EVENT_BYTES_MAX:
            return Problem(path, f"it is larger than {EVENT_BYTES_MAX} bytes")
        raw = files.read_file(whole_path)
    except FileNotFoundError:
        raw = None
    if raw is None:
        return Problem(path, "it was removed while the folder was read")
    try:
        event = parse_event(topic, raw)
    except NotAnEventFile as error:
        return Problem(path, str(error))
    if event.sequence != sequence:
        return Problem(path, f"it contains event {event.sequence}")
    return event if (wrong := misplaced(event, path)) is None else Problem(path, wrong)


def packed_events(files: Files, root: str, topic: str, path: str) -> Iterator[FileEvent | Problem]:
    """Yield the events of a packed group, in order."""
    last = 0
    for line in _decompressed_lines(files, root, path):
        if isinstance(line, Problem):
            yield line
            continue
        try:
            event = parse_event(topic, line)
        except NotAnEventFile as error:
            yield Problem(path, str(error))
            continue
        wrong = misplaced(event, f"{path.removesuffix(PACKED_END)}/{event_name(topic, event.sequence)}")
        if wrong is None and event.sequence <= last:
            wrong = f"it is stored after event {last}"
        if wrong is not None:
            yield Problem(path, f"event {event.sequence}: {wrong}")
            continue
        last = event.sequence
        yield event


def _decompressed_lines(files: Files, root: str, path: str) -> Iterator[bytes | Problem]:
    whole_path = os.path.join(root, path)
    try:
        if not files.is_plain(whole_path):
            yield Problem(path, "it is not a regular file")
            return
        fd = files.open_read(whole_path)
    except FileNotFoundError:
        return
    decompressor, position, rest = zlib.decompressobj(wbits=31), 0, b""
    try:
        while not decompressor.eof:
            raw = decompressor.unconsumed_tail
            if not raw:
                raw = files.pread(fd, COMPRESSED_READ_BYTES, position)
                position += len(raw)
            if not raw:
                yield Problem(path, "it is truncated")
                return
            *lines, rest = (rest + decompressor.decompress(raw, DECOMPRESSED_STEP_BYTES)).split(b"\n")
            yield from lines
            if len(rest) > EVENT_BYTES_MAX:
                yield Problem(path, f"it has a line of more than {EVENT_BYTES_MAX} bytes")
                return
    except zlib.error as error:
        yield Problem(path, f"it cannot be decompressed: {error}")
        return
    finally:
        files.close(fd)
    if rest:
        yield Problem(path, "its last line is incomplete")


def misplaced(event: FileEvent, path: str) -> str | None:
    """Return what is wrong with the path of an event; None if the path is correct."""
    date, group = path.split("/")[-3:-1]
    if group != group_of(event.sequence):
        return f"event {event.sequence} belongs to group {group_of(event.sequence)}"
    if date != date_of(event.timestamp):
        return f"event {event.sequence} belongs to the date {date_of(event.timestamp)}"
    return None


def names_in(files: Files, path: str) -> list[str]:
    """Return the names in a folder; an empty list if `path` does not exist or is not a folder."""
    try:
        return files.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []

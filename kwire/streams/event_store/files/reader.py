"""Reading the files back in the order of the events, and saying what is wrong with them.

Groups are numbered by the sequence, and a group's events lie in the folders of some dates, or packed beside them. At
any time only the names of one group are held and one event of each of its places, however many there are.

Whoever made the files may mean harm: what is no ordinary file is not opened, and everything has a bound.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kwire.broker.store.files.layout import (
    DATA,
    GONE_MARK,
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
from storage.files import Files

# What one event may have: far above what a topic takes.
EVENT_BYTES_MAX = 64 * 1024 * 1024
# Read, and unfolded, at a time.
FOLDED_BYTES = 64 * 1024
UNFOLDED_BYTES = 1024 * 1024


class Problem(NamedTuple):
    """A file, below the directory, and what is wrong with it."""

    path: str
    reason: str


def topics_in(files: Files, root: str) -> list[str]:
    """The topics that have files, in order."""
    return sorted(name for name in names_in(files, os.path.join(root, DATA)) if GONE_MARK not in name)


def events_in(files: Files, root: str, topic: str, from_sequence: int = 1) -> Iterator[FileEvent | Problem]:
    """All events from this number on, in order, each once; and what is found that is none, before its group."""
    strangers: list[Problem] = []
    groups = places_of_groups(files, root, topic, strangers)
    yield from strangers
    for number in sorted(groups):
        if (number + 1) * GROUP_EVENTS >= from_sequence:
            for one in group_events(files, root, topic, sorted(groups[number])):
                if isinstance(one, Problem) or one.sequence >= from_sequence:
                    yield one


def places_of_groups(
    files: Files, root: str, topic: str, strangers: list[Problem] | None = None
) -> dict[int, list[str]]:
    """The folders and packed files of each group; what is neither goes to `strangers`."""
    groups: dict[int, list[str]] = {}
    others: list[Problem] = [] if strangers is None else strangers
    folder = f"{DATA}/{topic}"
    for date in names_in(files, os.path.join(root, folder)):
        if not is_date(date):
            others.append(Problem(f"{folder}/{date}", "it is no date"))
            continue
        for name in names_in(files, os.path.join(root, folder, date)):
            group = name.removesuffix(PACKED_END)
            if is_group(group):
                groups.setdefault(int(group), []).append(f"{folder}/{date}/{name}")
            elif not name.endswith(UNFINISHED_END):
                others.append(Problem(f"{folder}/{date}/{name}", "it is no group of events"))
    return groups


def group_events(files: Files, root: str, topic: str, places: Sequence[str]) -> Iterator[FileEvent | Problem]:
    """What the folders and packed files of one group hold, in order; an event that is in several of them once."""
    sources = {place: _in_place(files, root, topic, place) for place in places}
    heads: dict[str, FileEvent] = {}
    while True:
        for place in [one for one in sources if one not in heads]:
            for event in sources[place]:
                if isinstance(event, FileEvent):
                    heads[place] = event
                    break
                yield event
            else:
                del sources[place]
        if not heads:
            return
        sequence = min(event.sequence for event in heads.values())
        first, *others = [place for place, event in heads.items() if event.sequence == sequence]
        event = heads.pop(first)
        for place in others:
            if heads.pop(place) != event:
                yield Problem(place, f"it has another event {topic}-{sequence} than {first}")
        yield event


def _in_place(files: Files, root: str, topic: str, place: str) -> Iterator[FileEvent | Problem]:
    return (packed_events if place.endswith(PACKED_END) else loose_events)(files, root, topic, place)


def loose_events(files: Files, root: str, topic: str, folder: str) -> Iterator[FileEvent | Problem]:
    """The files of a group, in order."""
    found: list[tuple[int, str]] = []
    for name in names_in(files, os.path.join(root, folder)):
        sequence = sequence_in(topic, name)
        if sequence is not None:
            found.append((sequence, name))
        elif not name.endswith(UNFINISHED_END):
            yield Problem(f"{folder}/{name}", "it is no event of this topic")
    for sequence, name in sorted(found):
        yield _read(files, root, topic, f"{folder}/{name}", sequence)


def _read(files: Files, root: str, topic: str, path: str, sequence: int) -> FileEvent | Problem:
    whole_path = os.path.join(root, path)
    try:
        if not files.is_plain(whole_path):
            return Problem(path, "it is no ordinary file")
        if files.size_of(whole_path) > EVENT_BYTES_MAX:
            return Problem(path, "it is larger than any event")
        raw = files.read_file(whole_path)
    except FileNotFoundError:
        raw = None
    if raw is None:
        return Problem(path, "it is gone")
    try:
        event = parse_event(topic, raw)
    except NotAnEventFile as error:
        return Problem(path, str(error))
    if event.sequence != sequence:
        return Problem(path, f"it holds event {event.sequence}")
    return event if (wrong := misplaced(event, path)) is None else Problem(path, wrong)


def packed_events(files: Files, root: str, topic: str, path: str) -> Iterator[FileEvent | Problem]:
    """The events of a packed group, in order."""
    last = 0
    for line in _unpacked_lines(files, root, path):
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
            wrong = f"it comes behind event {last}"
        if wrong is not None:
            yield Problem(path, f"event {event.sequence}: {wrong}")
            continue
        last = event.sequence
        yield event


def _unpacked_lines(files: Files, root: str, path: str) -> Iterator[bytes | Problem]:
    whole_path = os.path.join(root, path)
    try:
        if not files.is_plain(whole_path):
            yield Problem(path, "it is no ordinary file")
            return
        fd = files.open_read(whole_path)
    except FileNotFoundError:
        return
    folded, position, rest = zlib.decompressobj(wbits=31), 0, b""
    try:
        while not folded.eof:
            raw = folded.unconsumed_tail
            if not raw:
                raw = files.pread(fd, FOLDED_BYTES, position)
                position += len(raw)
            if not raw:
                yield Problem(path, "it is cut short")
                return
            *lines, rest = (rest + folded.decompress(raw, UNFOLDED_BYTES)).split(b"\n")
            yield from lines
            if len(rest) > EVENT_BYTES_MAX:
                yield Problem(path, "it has a line that is larger than any event")
                return
    except zlib.error as error:
        yield Problem(path, f"it cannot be unpacked: {error}")
        return
    finally:
        files.close(fd)
    if rest:
        yield Problem(path, "its last line has no end")


def misplaced(event: FileEvent, path: str) -> str | None:
    """What is wrong about where an event is; None if that is its place."""
    date, group = path.split("/")[-3:-1]
    if group != group_of(event.sequence):
        return f"event {event.sequence} belongs to group {group_of(event.sequence)}"
    if date != date_of(event.timestamp):
        return f"event {event.sequence} is of {date_of(event.timestamp)}"
    return None


def names_in(files: Files, path: str) -> list[str]:
    """What is in a folder; nothing if it is none."""
    try:
        return files.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []

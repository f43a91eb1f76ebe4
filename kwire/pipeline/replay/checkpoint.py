"""How far a replay has come, noted on disk before every round it sends.

A round is one batch for each partition of the target, so each of its parts lands whole or not at all. The note says
which events are settled, and which round is under way: after a kill that one round is in doubt, and nothing else. It is
looked for in the target from `target_from` on, and what is not there is sent.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kwire.pipeline.replay.event import CannotReplay

VERSION = 1


@dataclass(frozen=True)
class Note:
    """Offsets by partition. `settled` and `through` are places in the source, `target_from` are places in the target.

    Events below `settled` are done with; those from there up to `through` are the round under way. `target_from` names
    every partition that the target had when that round began.
    """

    # What is replayed to where, in the words of the one who asked: another replay must not go on from here.
    purpose: Mapping[str, Any]
    settled: Mapping[int, int] = field(default_factory=dict)
    through: Mapping[int, int] = field(default_factory=dict)
    target_from: Mapping[int, int] = field(default_factory=dict)
    events: int = 0
    # The id of the topic that the events are from: the offsets of another one of its name mean other events.
    origin: str = ""

    @property
    def is_in_doubt(self) -> bool:
        return bool(self.through)

    @property
    def has_begun(self) -> bool:
        return bool(self.settled or self.through)

    def of(self, origin: str) -> "Note":
        """For events of this topic; CannotReplay if those that are settled were of another one."""
        if self.has_begun and self.origin != origin:
            raise CannotReplay(
                f"the table is of another topic {self.purpose.get('topic')} than when this replay began: its offsets "
                "mean other events. To begin anew, give another --checkpoint"
            )
        return replace(self, origin=origin)

    def under_way(self, through: Mapping[int, int], target_from: Mapping[int, int]) -> "Note":
        return replace(self, through=dict(through), target_from=dict(target_from))

    def done(self, events: int) -> "Note":
        """The round under way is settled; `events` of it were sent."""
        return replace(self, settled={**self.settled, **self.through}, through={}, events=self.events + events)


class NoteFile:
    """Replaced as a whole, and on disk when `write` returns. Only whoever holds it may write it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """For this process alone, however it ends; CannotReplay if another one has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f".{self._path.name}.lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CannotReplay(f"{self._path}: another process is at this replay") from None
            yield

    def read(self, purpose: Mapping[str, Any]) -> Note:
        """The note of this replay, or one of a replay that has not begun; CannotReplay if it is of another one."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return Note(dict(purpose))
        note = _parse(raw, self._path)
        if note.purpose != purpose:
            changed = sorted(name for name in {*note.purpose, *purpose} if note.purpose.get(name) != purpose.get(name))
            told = ", ".join(f"{name} was {note.purpose.get(name)!r}, not {purpose.get(name)!r}" for name in changed)
            raise CannotReplay(f"{self._path} is of another replay: {told}. To begin anew, give another --checkpoint")
        return note

    def write(self, note: Note) -> None:
        text = json.dumps({"version": VERSION, **asdict(note)}).encode() + b"\n"
        unfinished = self._path.with_name(f".{self._path.name}.new")
        with unfinished.open("wb") as file:
            file.write(text)
            file.flush()
            os.fdatasync(file.fileno())
        unfinished.replace(self._path)
        # The name is safe when the folder is.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _parse(raw: bytes, path: Path) -> Note:
    try:
        facts = json.loads(raw)
        if facts["version"] != VERSION:
            raise CannotReplay(f"{path} is of another version of kwire: {facts['version']!r}")
        settled, through, target_from = (_offsets(facts[name]) for name in ("settled", "through", "target_from"))
        return Note(dict(facts["purpose"]), settled, through, target_from, int(facts["events"]), str(facts["origin"]))
    except CannotReplay:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CannotReplay(f"{path} is no note of a replay: {error!r}") from error


def _offsets(told: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in told.items()}

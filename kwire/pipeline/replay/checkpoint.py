"""The checkpoint of a replay, written to disk before every round is sent.

A round consists of one batch per target partition. The server appends each batch completely or not at all. The
checkpoint stores which events were sent and acknowledged (settled), and which round is in progress. After a crash, only
the round in progress is in doubt: the target may have all, some or none of its events. So the replay searches the
target for the events of this round, from the offsets `target_from` on, and sends those that are missing.
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
class ReplayCheckpoint:
    """The state of a replay, mainly as offsets by partition.

    `settled` and `through` are offsets in the source. Events before `settled` were sent and acknowledged. Events from
    `settled` to `through` (exclusive) belong to the round in progress. `target_from` has the end offsets of the target
    when that round started, for every partition of the target.
    """

    # The arguments that identify the replay. A replay with other arguments must not continue from this checkpoint.
    purpose: Mapping[str, Any]
    settled: Mapping[int, int] = field(default_factory=dict)
    through: Mapping[int, int] = field(default_factory=dict)
    target_from: Mapping[int, int] = field(default_factory=dict)
    events: int = 0
    # The id of the source topic. In another topic with the same name, the offsets belong to other events.
    origin: str = ""

    @property
    def is_in_doubt(self) -> bool:
        return bool(self.through)

    @property
    def has_started(self) -> bool:
        return bool(self.settled or self.through)

    def for_origin(self, origin: str) -> "ReplayCheckpoint":
        """Return the checkpoint with this source topic id. Raises CannotReplay if events of another topic were sent."""
        if self.has_started and self.origin != origin:
            raise CannotReplay(
                f"the table was filled from another topic {self.purpose.get('topic')} than when this replay started, "
                "so its offsets mean other events. To start again, use another --checkpoint"
            )
        return replace(self, origin=origin)

    def start_round(self, through: Mapping[int, int], target_from: Mapping[int, int]) -> "ReplayCheckpoint":
        return replace(self, through=dict(through), target_from=dict(target_from))

    def finish_round(self, events: int) -> "ReplayCheckpoint":
        """Return the checkpoint after the round in progress was settled. `events` is the number of its events."""
        return replace(self, settled={**self.settled, **self.through}, through={}, events=self.events + events)


class CheckpointFile:
    """The file of a checkpoint. `write` replaces the file atomically and syncs it. Callers of `write` hold the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the checkpoint for this process. Raises CannotReplay if another process holds the lock."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f".{self._path.name}.lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CannotReplay(f"{self._path}: another process is running this replay") from None
            yield

    def read(self, purpose: Mapping[str, Any]) -> ReplayCheckpoint:
        """Return the checkpoint of this replay, or an empty one if the file does not exist.

        Raises CannotReplay if the file belongs to another replay.
        """
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return ReplayCheckpoint(dict(purpose))
        checkpoint = _parse(raw, self._path)
        if checkpoint.purpose != purpose:
            before = checkpoint.purpose
            changed = sorted(name for name in {*before, *purpose} if before.get(name) != purpose.get(name))
            differences = ", ".join(f"{name} was {before.get(name)!r}, not {purpose.get(name)!r}" for name in changed)
            raise CannotReplay(
                f"{self._path} is the checkpoint of another replay: {differences}. Use another --checkpoint"
            )
        return checkpoint

    def write(self, checkpoint: ReplayCheckpoint) -> None:
        text = json.dumps({"version": VERSION, **asdict(checkpoint)}).encode() + b"\n"
        unfinished = self._path.with_name(f".{self._path.name}.new")
        with unfinished.open("wb") as file:
            file.write(text)
            file.flush()
            os.fdatasync(file.fileno())
        unfinished.replace(self._path)
        # The directory must be synced, so that the rename survives a power failure.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _parse(raw: bytes, path: Path) -> ReplayCheckpoint:
    try:
        facts = json.loads(raw)
        if facts["version"] != VERSION:
            raise CannotReplay(f"{path} has the unsupported checkpoint version {facts['version']!r}")
        settled, through, target_from = (_offsets(facts[name]) for name in ("settled", "through", "target_from"))
        return ReplayCheckpoint(
            dict(facts["purpose"]), settled, through, target_from, int(facts["events"]), str(facts["origin"])
        )
    except CannotReplay:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CannotReplay(f"{path} is not a checkpoint of a replay: {error!r}") from error


def _offsets(stored: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in stored.items()}

"""The files of events on a simulated disk that crashes anywhere, beside a log that does not.

A run publishes, changes schemas, deletes topics and makes them anew, while the files are kept in step; a crash ends the
writer of the files, by kill or by power cut, in the middle of any call. After each one the ledger says what has to be
there.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kwire.streams.event_store.files.layout import FileEvent, deleted_name, event_path, event_text, parse_config
from kwire.streams.event_store.files.reader import topics_in
from kwire.streams.event_store.files.sink import EventFiles, file_events
from kwire.streams.event_store.files.writer import read_position
from tests.support.event_files import found_events, sink_of
from tests.support.event_store import draft, events_of
from tests.support.node import QuietNode
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

ROOT = "/somewhere/out"
NAMES = ("a", "b-1", "c")
CATCH_UP_SECONDS = 20.0


@dataclass(frozen=True)
class FilesPlan:
    """What one run does; everything else is chance."""

    lives: int = 4
    steps: int = 6
    crash_within_calls: int = 400
    has_failures: bool = False


class FilesWorld:
    """See the module's words. A run is repeated by its seed."""

    def __init__(self, directory: Path, seed: int, plan: FilesPlan | None = None) -> None:
        self.plan = plan or FilesPlan()
        self.chance = Random(seed)
        self.node = QuietNode(directory)
        self.disk = SimulatedDisk()
        # What each topic ever had, by its id: the files have to be of one of them.
        self.ledger: dict[str, list[FileEvent]] = {}
        self.schemas: dict[bytes, list[object]] = {}
        self.crash_count = self.call_count = 0

    def close(self) -> None:
        self.node.close()

    async def run(self) -> None:
        for _ in range(self.plan.lives):
            self.disk.crash_at = self.disk.call_count + self.chance.randint(1, self.plan.crash_within_calls)
            await self.live()
            self.crash(is_power_cut=self.chance.random() < 0.6)
        await self.finish()

    async def live(self) -> None:
        """One life of the writer; it may end anywhere."""
        self.files = SimulatedFiles(self.disk)
        try:
            sink = await self.opened()
        except Crashed:
            return
        for _ in range(self.plan.steps):
            if self.plan.has_failures and self.chance.random() < 0.4:
                self.fail_something()
            await self.step(sink)
            if self.chance.random() < 0.7 and not await self.catch_up(sink):
                break
        await self.end(sink)

    async def opened(self) -> EventFiles:
        sink = sink_of(self.node, Path(ROOT), files=self.files, schemas_of=lambda one: self.schemas.get(one, []))
        # A fault that was planned before is none of the start's.
        await sink.open()
        return sink

    async def catch_up(self, sink: EventFiles) -> bool:
        """False if the writer is dead."""
        assert sink._task is not None
        waiting = asyncio.ensure_future(sink.caught_up())
        await asyncio.wait({waiting, sink._task}, timeout=CATCH_UP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done() or sink._task.done(), "it does not catch up"
        waiting.cancel()
        return not sink._task.done()

    async def end(self, sink: EventFiles) -> None:
        """Gone, as after a kill: whatever it did not do yet stays undone."""
        assert sink._task is not None
        sink._task.cancel()
        with suppress(asyncio.CancelledError, Crashed):
            await sink._task
        for cursor in sink._cursors.values():
            cursor.log.unwatch(sink._on_new_events)

    def crash(self, *, is_power_cut: bool) -> None:
        self.crash_count += 1
        self.call_count += self.disk.call_count
        if is_power_cut or self.disk.is_lying:
            self.disk = self.disk.after_power_cut(self.chance)
        else:
            self.disk.restarted()
        self.disk.call_count = 0
        self.disk.crash_at = self.disk.free_bytes = None
        self.check_crashed()

    async def finish(self) -> None:
        """A last life without trouble: then everything is as it should be."""
        self.disk.restarted()
        self.disk.free_bytes = None
        self.files = SimulatedFiles(self.disk)
        sink = await self.opened()
        assert await self.catch_up(sink)
        await sink.close()
        self.note_events()
        self.check_whole()
        assert self.files.open_count == 0

    # --- one step

    async def step(self, sink: EventFiles) -> None:
        kind = self.chance.choice(["publish"] * 6 + ["delete", "evolve", "nothing"])
        if kind == "publish":
            await self.publish()
        elif kind == "evolve":
            topic = self.node.topics.get(self.chance.choice(NAMES))
            if topic is not None:
                self.schemas.setdefault(topic.topic_id, []).append({"eventType": f"type{self.chance.random()}"})
                sink.schemas_changed(topic.topic_id)
        elif kind == "delete":
            topic = self.node.topics.get(self.chance.choice(NAMES))
            if topic is not None:
                self.note_events()
                await self.node.topics.delete(topic)
        elif self.chance.random() < 0.5:
            self.disk.write_back(self.chance)

    async def publish(self) -> None:
        name = self.chance.choice(NAMES)
        if self.node.topics.get(name) is None:
            await self.node.create_event_topic(name)
        # A day or two between some of them; several groups would take too long here.
        self.node.clock.advance(self.chance.choice([0, 1, 50_000_000]))
        count = self.chance.choice([1, 2, 5, 40])
        padding = "x" * self.chance.choice([0, 10, 5000])
        await self.node.event_store.publish([draft(name, {"at": at, "padding": padding}) for at in range(count)])
        self.note_events()

    def fail_something(self) -> None:
        match self.chance.randrange(3):
            case 0:
                self.disk.fail_next(
                    self.chance.choice(["fsync", "syncfs", "fsync_dir"]), after=self.chance.randint(0, 9)
                )
            case 1:
                self.disk.fail_next(
                    self.chance.choice(["create", "pwrite", "rename"]), errno.ENOSPC, after=self.chance.randint(0, 9)
                )
            case 2:
                self.disk.shorten_next_write(self.chance.randint(0, 50))

    # --- the ledger

    def note_events(self) -> None:
        for name in NAMES:
            topic = self.node.topics.get(name)
            if topic is not None:
                self.ledger[topic.topic_id.hex()] = file_events(events_of(topic))

    def check_crashed(self) -> None:
        """What somebody sees who looks before the next start."""
        self.note_events()
        files = SimulatedFiles(self.disk)
        if not files.exists(f"{ROOT}/.kwire/positions"):
            return
        names = files.listdir(f"{ROOT}/.kwire/positions")
        for name in (one.removesuffix(".json") for one in names if one.endswith(".json")):
            position = read_position(files, ROOT, name)
            assert position is not None, f"the position of {name} is torn"
            events = self.ledger.get(position.topic_id, [])
            assert position.next_offset <= len(events), f"{name} says it has more than there was"
            # A deletion that was interrupted has moved them.
            gone = f"{ROOT}/data/{deleted_name(name, position.topic_id)}"
            if self.node.topics.catalogue.name_of(bytes.fromhex(position.topic_id)) is None and files.exists(gone):
                continue
            whole = {event_path(name, event): event_text(name, event) for event in events}
            for event in events[: position.next_offset]:
                path = event_path(name, event)
                assert files.read_file(f"{ROOT}/{path}") == whole[path], f"{path} is missing, or not what it was"
            for event in found_events(files, ROOT, name):
                path = event_path(name, event)
                assert files.read_file(f"{ROOT}/{path}") == whole.get(path), f"{path} is no event of {name}"
            config = files.read_file(f"{ROOT}/config/{name}.json")
            if config is not None:
                sequence, _ = parse_config(name, config)
                assert sequence <= len(events)

    def check_whole(self) -> None:
        files = SimulatedFiles(self.disk)
        live = {name: topic for name in NAMES if (topic := self.node.topics.get(name)) is not None}
        described = sorted(files.listdir(f"{ROOT}/config"))
        assert described == [f"{name}.json" for name in sorted(live)], described
        assert set(topics_in(files, ROOT)) == {name for name in live if self.ledger[live[name].topic_id.hex()]}
        expected = set()
        for name, topic in live.items():
            events = self.ledger[topic.topic_id.hex()]
            assert found_events(files, ROOT, name) == events, f"the files of {name} are not its events"
            expected |= {event_path(name, event) for event in events}
            config = files.read_file(f"{ROOT}/config/{name}.json")
            assert config is not None
            schemas = self.schemas.get(topic.topic_id, [])
            assert json.loads(config) == {"name": name, "sequence": len(events), "schemas": schemas}
        assert set(_all_files(files, "data")) == expected, "there are files of nobody"


def _all_files(files: SimulatedFiles, folder: str) -> list[str]:
    try:
        names = files.listdir(f"{ROOT}/{folder}")
    except FileNotFoundError:
        return [folder]
    return [path for name in names for path in _all_files(files, os.path.join(folder, name))]

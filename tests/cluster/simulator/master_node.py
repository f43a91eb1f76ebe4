"""The master of the simulation: the real master on a metadata store in memory whose commits take time.

A crash drops the commits that are under way: some have been applied although no answer leaves.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Iterator, Sequence
from typing import Any, Final, NoReturn

import msgspec

from kwire.cluster.core.control import CreateStream, Granted
from kwire.cluster.core.messages import Copied
from kwire.cluster.master import Master, MasterSettings, NotMaster, Outcome
from kwire.cluster.master.state import SEGMENT_PREFIX, STREAM_PREFIX, SegmentEntry, StreamEntry
from kwire.metastore.interface import ABSENT, Change, Condition, Conflict, Entry
from tests.cluster.simulator.ledger import Ledger
from tests.cluster.simulator.network import Network
from tests.cluster.simulator.options import Options
from tests.cluster.simulator.stream_kinds import is_partition
from tests.cluster.simulator.world import World

NAME: Final = "m"
TICK_MS: Final = 50
COMMIT_MS_MAX: Final = 5


@types.coroutine
def _wait(length_ms: int) -> Generator[int, None, None]:
    """Suspend a coroutine of the master. The node continues it after this time."""
    yield length_ms


class MemoryMetaStore:
    """The committed metadata. It survives the crashes of the master."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world, self._ledger = world, ledger
        self._chance = world.chance("metadata store")
        self._entries: dict[str, Entry] = {}
        self.revision = 0

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        return iter([(key, self._entries[key]) for key in sorted(self._entries) if key.startswith(prefix)])

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        await _wait(self._chance.randint(0, COMMIT_MS_MAX))
        for key, expected in [*((one.key, one.expected_revision) for one in changes), *conditions]:
            entry = self._entries.get(key)
            if (entry.revision if entry is not None else ABSENT) != expected:
                raise Conflict(key)
        self.revision += 1
        for change in changes:
            if change.value is None:
                self._entries.pop(change.key, None)
            else:
                self._entries[change.key] = Entry(change.value, self.revision)
        for change in changes:
            if change.key.startswith(SEGMENT_PREFIX) and change.value is not None:
                segment = msgspec.convert(change.value, SegmentEntry)
                self._ledger.record_changed(segment.stream, segment.record)
            elif change.key.startswith(STREAM_PREFIX) and change.value is not None:
                stream = msgspec.convert(change.value, StreamEntry)
                self._ledger.start_moved(stream.name, stream.start)
        revision = self.revision
        await _wait(self._chance.randint(0, COMMIT_MS_MAX))
        return revision

    def watch(self, prefix: str, from_revision: int) -> NoReturn:
        raise NotImplementedError("the master does not watch")

    async def lease(self, ttl_seconds: int, on_lost: object = None) -> NoReturn:
        raise NotImplementedError("the master keeps the leases of leaders itself")

    async def resume_lease(self, lease_id: int, on_lost: object = None) -> NoReturn:
        raise NotImplementedError("the master keeps the leases of leaders itself")

    async def erase_history(self) -> NoReturn:
        raise NotImplementedError("there is no history")


class MasterNode:
    """The only master. After a crash another process takes over with the same metadata."""

    def __init__(self, world: World, network: Network, options: Options, ledger: Ledger, streams: list[str]) -> None:
        self._world, self._network, self._options, self._ledger = world, network, options, ledger
        self._chance = world.chance("master")
        self._store = MemoryMetaStore(world, ledger)
        self._settings = MasterSettings(
            lease_ttl_ms=options.ttl_ms,
            candidate_ttl_ms=options.ttl_ms,
            store_timeout_ms=options.ttl_ms,
            store_replace_ms=4 * options.ttl_ms,
            copy_timeout_ms=1_000,
            learner_wait_ms=500,
            free_bytes_min=1,
        )
        self._streams = streams
        self._life = 0
        self.is_up = False
        self._is_ticking = False
        self.start()

    def start(self) -> None:
        self._life += 1
        self._master = Master(self._store, NAME, self._settings)
        self._is_ticking = False
        life = self._life

        def started(_: None) -> None:
            self.is_up = True
            self._network.handlers[NAME] = self.receive
            for stream in self._streams:
                quorum = self._options.policy.quorum
                whole_log = self._options.is_whole_log or is_partition(stream)
                create = CreateStream(stream, quorum.replicas, quorum.writes, whole_log=whole_log)
                self._run(self._master.handle(create, self._world.now), lambda _: None, life)
            self._tick(life)

        self._run(self._master.start(self._world.now), started, life)

    def crash(self, length: int) -> None:
        """Stop at once, whatever is under way, and start again later."""
        self._life += 1
        self.is_up = False
        self._network.handlers.pop(NAME, None)
        life = self._life

        def start() -> None:
            if life == self._life:
                self.start()

        self._world.after(length, start)

    def _run(self, coroutine: Coroutine[Any, Any, Any], done: Any, life: int) -> None:
        """Run a coroutine of the master in virtual time, as long as the process lives."""

        def proceed() -> None:
            if life != self._life:
                coroutine.close()
                return
            try:
                length = coroutine.send(None)
            except StopIteration as stop:
                done(stop.value)
            except NotMaster:
                self._world.note("not the master")
                self._is_ticking = False
            else:
                self._world.after(length, proceed)

        proceed()

    def receive(self, source: str, body: object) -> None:
        self._world.note(NAME, (source, type(body).__name__, body))

        def answered(outcome: Outcome) -> None:
            answer = outcome.answer
            if isinstance(answer, Granted):
                self._ledger.granted_by_master(source, answer)
            self._finish(outcome)
            if answer is not None:
                self._network.send(NAME, source, answer)

        if isinstance(body, Copied):
            self._run(self._master.handle_copied(source, body, self._world.now), self._finish, self._life)
        else:
            self._run(self._handle(body), answered, self._life)

    def _handle(self, body: Any) -> Coroutine[Any, Any, Outcome]:
        return self._master.handle(body, self._world.now, self._chance.getrandbits(30))

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        self._world.after(TICK_MS, lambda: self._tick(life))
        if self._is_ticking:
            return
        self._is_ticking = True

        def ticked(outcome: Outcome) -> None:
            self._is_ticking = False
            self._finish(outcome)

        self._run(self._master.tick(self._world.now, self._chance.getrandbits(30)), ticked, life)

    def _finish(self, outcome: Outcome) -> None:
        for alarm in outcome.alarms:
            self._ledger.alarmed(alarm)
        for message in outcome.messages:
            self._network.send(message.source, message.target, message.body)

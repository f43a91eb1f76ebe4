"""A segment store of the simulation: the real core and the real files on a simulated disk that fails.

The node applies the writes of the core, syncs them and only then sends the messages. A crash stops it inside any call
of the disk. It starts again after a while, with what the disk has kept.
"""

from __future__ import annotations

import errno
from typing import Final

from msgspec.structs import replace

from kwire.cluster.core.control import StoreAccepted, StoreHeartbeat, StoreRejected
from kwire.cluster.core.messages import Message, Store
from kwire.cluster.core.store.segment_store import PendingRead, SegmentStore, StoreOutput
from kwire.cluster.segment_files.partition_log import EntryDamaged
from kwire.cluster.segment_files.segment_files import FILE_SUFFIX, LOG_SUFFIX, SegmentFiles
from storage.errors import DiskFailure
from tests.cluster.simulator.ledger import Ledger
from tests.cluster.simulator.network import Network
from tests.cluster.simulator.options import Options
from tests.cluster.simulator.stream_kinds import is_partition, log_settings
from tests.cluster.simulator.world import World
from tests.support.simulated_disk import UNBOUNDED_BYTES, Crashed, SimulatedDisk, SimulatedFiles
from tests.support.simulated_nodes import PAGE_BYTES, SimulatedFile, SimulatedFolder

DIRECTORY: Final = "/data/segments"
# A store with less free space takes no entries, so that seals still find room.
RESERVED_BYTES: Final = 8 * PAGE_BYTES
TICK_MS: Final = 20
# A store that a crash has not reached after this time is stopped between two calls of its disk.
CRASH_WITHIN_MS: Final = 200


class StoreNode:
    """One store. `name` changes after its disk was replaced: the master refuses another disk under an old name."""

    def __init__(self, number: int, world: World, network: Network, options: Options, ledger: Ledger) -> None:
        self.name = f"s{number}"
        self._number, self._world, self._network, self._options = number, world, network, options
        self._ledger = ledger
        self._chance = world.chance(f"store {number}")
        self._disk = _new_disk()
        self.cookie = self._chance.getrandbits(60)
        self.core: SegmentStore | None = None
        self.files: SegmentFiles | None = None
        # Counts the lives of the process, so that events of an earlier one are ignored.
        self._life = 0
        self._waiting: list[StoreOutput] = []
        self._paused_until = 0
        self._inbox: list[tuple[str, object]] = []
        self._is_power_cut = False
        self._heartbeat_count = 0
        self._heartbeat_at = 0

    # --- life

    def start(self) -> None:
        if self.core is not None:
            return
        self._life += 1
        try:
            files = SegmentFiles.open(
                DIRECTORY, SimulatedFiles(self._disk), self.cookie, log_settings, syncs=self._options.is_synced
            )
        except Crashed:
            self._stop("crash at the start")
            return
        except DiskFailure as failure:
            self._world.note("start failed", (self.name, str(failure)))
            self._stop("disk failure at the start")
            return
        if files.damages:
            self._world.note("damage found", (self.name, files.damages))
        states = files.states()
        self.files = files
        self.core = SegmentStore(
            self.name, files.incarnation, states, self._options.limits, is_partition, is_limbo=files.is_limbo
        )
        self._ledger.store_started(self, states, files.incarnation)
        self._world.note("store starts", (self.name, files.incarnation))
        self._network.handlers[self.name] = self.receive
        self._heartbeat_count = self._heartbeat_at = 0
        self._tick(self._life)

    def _stop(self, why: str) -> None:
        self._world.note("store stops", (self.name, why))
        self.core = None
        self._waiting, self._inbox, self._paused_until = [], [], 0
        self._network.handlers.pop(self.name, None)
        if self._is_power_cut:
            self._is_power_cut = False
            self._disk = self._disk.after_power_cut(self._chance)
        else:
            self._disk.restarted()
        self._world.after(self._chance.choice((20, 200, 1500)), self.start)

    def _tick(self, life: int) -> None:
        if life != self._life or self.core is None:
            return
        self._world.after(TICK_MS, lambda: self._tick(life))
        if self._is_paused:
            return
        if self._world.now - self._heartbeat_at >= self._options.limits.heartbeat_ms or not self._heartbeat_count:
            self._heartbeat()
        self._take(self.core.tick(self._world.now))

    def _heartbeat(self) -> None:
        assert self.core is not None
        self._heartbeat_at = self._world.now
        self._heartbeat_count += 1
        unclosed = [replica for replica in self.core.replicas.values() if not replica.closed_end]
        body = StoreHeartbeat(
            self.name,
            self.core.incarnation,
            SimulatedFiles(self._disk).space(DIRECTORY)[1],
            tuple(replica.segment for replica in unclosed),
            tuple(replica.segment for replica in unclosed if replica.unknown),
            sequence=self._heartbeat_count,
        )
        self._network.send(self.name, "m", body)

    # --- messages

    @property
    def _is_paused(self) -> bool:
        return self._world.now < self._paused_until

    def receive(self, source: str, body: object) -> None:
        if self.core is None:
            return
        if self._is_paused:
            self._inbox.append((source, body))
            return
        self._world.note(self.name, (source, type(body).__name__, body))
        if isinstance(body, StoreRejected):
            # A late heartbeat of an earlier process of this store is refused, too.
            if body.store == self.name and body.incarnation == self.core.incarnation:
                self._rejected()
        elif not isinstance(body, StoreAccepted):
            if isinstance(body, Store) and body.entries and self._is_almost_full:
                self._world.fired["entry refused by a full disk"] += 1
                return
            message = Message(source, self.name, body)  # type: ignore[arg-type]
            self._take(self.core.step(message, self._world.now))

    @property
    def _is_almost_full(self) -> bool:
        return self._disk.free_bytes is not None and self._disk.free_bytes < RESERVED_BYTES

    def _take(self, output: StoreOutput) -> None:
        if not (output.writes or output.reads or output.messages):
            return
        self._waiting.append(output)
        if not self._options.group_commit_ms:
            self._commit(self._life)
        elif len(self._waiting) == 1:
            life = self._life
            self._world.after(self._options.group_commit_ms, lambda: self._commit(life))

    def _commit(self, life: int) -> None:
        """Apply the writes of some steps together, then send their messages."""
        if life != self._life or self.core is None:
            return
        assert self.files is not None
        outputs, self._waiting = self._waiting, []
        writes = [write for output in outputs for write in output.writes]
        try:
            self._ledger.before_writes(self, writes)
            self.files.apply(writes)
            messages = [
                message
                for output in outputs
                for message in (*(self._filled(read) for read in output.reads), *output.messages)
            ]
        except Crashed:
            self._stop("crash")
            return
        except (DiskFailure, EntryDamaged) as failure:
            self._stop(str(failure))
            return
        self._ledger.after_writes(self, writes)
        for replica in self.core.replicas.values():
            self.files.commit(replica.segment, replica.limit)
        for message in messages:
            self._ledger.store_sends(self, message.body)
            self._network.send(message.source, message.target, message.body)

    def _filled(self, read: PendingRead) -> Message:
        assert self.files is not None
        assert self.core is not None
        # A later step of the same commit may have removed the replica.
        is_there = read.segment in self.core.replicas
        entries = self.files.read(read.segment, read.first, read.last, read.bytes_max) if is_there else ()
        return replace(read.message, body=replace(read.message.body, entries=entries))

    def _rejected(self) -> None:
        """The master refuses this disk under the store's name: an administrator gives it another name."""
        self._world.note("store rejected", self.name)
        self._network.handlers.pop(self.name, None)
        self.core = None
        self._waiting, self._inbox = [], []
        self.name += "+"
        self._life += 1
        self._disk.restarted()
        self._world.after(100, self.start)

    # --- faults

    def crash(self, calls: int, *, is_power_cut: bool) -> None:
        """Stop inside one of the next calls of the disk."""
        self._is_power_cut = is_power_cut
        self._disk.crash_at = self._disk.call_count + calls
        life = self._life

        def stop_now() -> None:
            if life == self._life and self.core is not None:
                self._stop("crash between two calls")

        self._world.after(CRASH_WITHIN_MS, stop_now)

    def cut_power(self) -> None:
        self._is_power_cut = True
        if self.core is not None:
            self._stop("power cut of all stores")
        else:
            self._disk = self._disk.after_power_cut(self._chance)
            self._is_power_cut = False

    def pause(self, length: int) -> None:
        """Stop for a while, as by a signal; messages wait."""
        self._paused_until = self._world.now + length
        self._world.after(length, self._resume)

    def _resume(self) -> None:
        if not self._is_paused:
            inbox, self._inbox = self._inbox, []
            for source, body in inbox:
                self.receive(source, body)

    def fail_sync(self, after: int) -> None:
        self._disk.fail_next("fdatasync", after=after)

    def fail_write(self, after: int) -> None:
        self._disk.fail_next("pwrite", errno.EIO, after=after)

    def fill_disk(self, pages: int, length: int) -> None:
        self._disk.free_bytes = pages * PAGE_BYTES
        self._world.after(length, self.free_disk)

    def free_disk(self) -> None:
        self._disk.free_bytes = None

    def damage(self, place: int) -> bool:
        """Flip a bit of a file of a replica or of the log of a partition."""
        files = [one for one in self._replica_files() if one.size > 20]
        if files:
            files[place % len(files)].flip_bit(self._chance.randrange(files[place % len(files)].size), place % 8)
        return bool(files)

    def misdirect(self, place: int) -> bool:
        """Put a page of one file in the place of a page of another one."""
        files = [one for one in self._replica_files() if one.size > 20]
        if len(files) < 2:
            return False
        source, target = self._chance.sample(files, 2)
        pages = min(source.size, target.size) // PAGE_BYTES + 1
        start = place % pages * PAGE_BYTES
        data = source.read(min(PAGE_BYTES, target.size - start), start)
        for buffer in (*target.buffers, target.platter):
            if start + len(data) <= len(buffer):
                buffer[start : start + len(data)] = data
        return True

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self._is_power_cut = False
        if self.core is not None:
            self._stop("wiped")
        self._disk = _new_disk()
        self.cookie = self._chance.getrandbits(60)

    def heal(self) -> None:
        """No more faults."""
        self._disk.repair()
        self._disk.free_bytes = None
        self._disk.crash_at = None
        self._is_power_cut = False
        self._paused_until = self._world.now
        self._resume()

    @property
    def free_bytes(self) -> int:
        return UNBOUNDED_BYTES if self._disk.free_bytes is None else self._disk.free_bytes

    def _replica_files(self) -> list[SimulatedFile]:
        folder = self._disk.find(DIRECTORY)
        if folder is None or isinstance(folder, SimulatedFile):
            return []
        found = [folder.names[name] for name in sorted(folder.names) if name.endswith(FILE_SUFFIX)]
        for name in sorted(folder.names):
            log = folder.names[name]
            if name.endswith(LOG_SUFFIX) and isinstance(log, SimulatedFolder):
                found += [log.names[one] for one in sorted(log.names)]
        return [file for file in found if isinstance(file, SimulatedFile)]


def _new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    files = SimulatedFiles(disk)
    files.makedirs("/data")
    files.syncfs("/")
    return disk

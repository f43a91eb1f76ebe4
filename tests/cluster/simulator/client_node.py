"""Clients and readers of the simulation: the real writer and reader, with clocks of their own speed."""

from __future__ import annotations

from random import Random
from typing import Final

from kwire.cluster.core.control import (
    ClientAnswer,
    CloseSegment,
    Describe,
    Described,
    Granted,
    NotLeader,
    Renewed,
    SegmentChanged,
    SegmentRecord,
    StreamTrimmed,
    Unavailable,
)
from kwire.cluster.core.entries import FIRST_POSITION, Position
from kwire.cluster.core.leader.replicator import Replicator
from kwire.cluster.core.leader.writer import Writer
from kwire.cluster.core.messages import Fetched, Peek, Peeked, Refused, Sealed, SegmentId
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.reader.quorum_read import acknowledged
from kwire.cluster.core.reader.reader import Reader
from tests.cluster.simulator.ledger import Ledger
from tests.cluster.simulator.network import Network
from tests.cluster.simulator.options import Options
from tests.cluster.simulator.world import World

TICK_MS: Final = 10
QUORUM_READ_MS: Final = 300
# A leader trims within this time after an acknowledgement.
TRIM_MS_MAX: Final = 400


class _Clock:
    """The clock of a machine: it runs at its own speed."""

    def __init__(self, world: World, speed: float) -> None:
        self._world, self._speed = world, speed

    @property
    def now(self) -> int:
        return int(self._world.now * self._speed)


class ClientNode:
    """A client that wants to lead a stream, and whose producer appends when it does."""

    def __init__(
        self, number: int, stream: str, world: World, network: Network, options: Options, ledger: Ledger
    ) -> None:
        self._number, self.stream = number, stream
        self._world, self._network, self._options, self._ledger = world, network, options, ledger
        self._chance = world.chance(f"client {number}")
        self._trim_chance = world.chance(f"trims of client {number}")
        self._clock = _Clock(world, options.skews[number % len(options.skews)])
        self._life = 0
        self._payload_count = 0
        self._paused_until = 0
        self._inbox: list[tuple[str, object]] = []
        self.is_producing = True
        # Why the master has refused the last request.
        self._refusal = ""
        self._start(f"c{number}", 0)

    def _start(self, name: str, candidacy: int) -> None:
        self._life += 1
        self.name = name
        self._inbox, self._paused_until = [], 0
        self.writer = Writer(name, self.stream, self._options.policy, self._options.limits, candidacy)
        self._network.handlers[self.name] = self.receive
        life = self._life
        self._world.after(self._chance.randint(1, 50), lambda: self._tick(life))
        self._world.after(self._chance.randint(1, 50), lambda: self._produce(life))

    def replicator_of(self, segment: SegmentId, epoch: int) -> Replicator | None:
        """The log of a segment, if this client still leads with the epoch."""
        writer = self.writer
        if writer.epoch != epoch:
            return None
        recovery = writer._recovery
        found = [*writer._replicators(), *([recovery.replicator] if recovery and recovery.replicator else [])]
        return next((one for one in found if one.segment == segment), None)

    def state(self) -> str:
        """What this leader waits for."""
        writer, recovery = self.writer, self.writer._recovery
        waits = (
            f"recovers {recovery.segment} ({recovery.phase}, {recovery.undecided})" if recovery else "recovers nothing"
        )
        return f"{self.name} leads with epoch {writer.epoch}, {waits}, writes to {writer.open_segment} {self._refusal}"

    def restart(self, *, keeps_name: bool) -> None:
        """The process is killed and starts again.

        With its old name it gets messages that were meant for the process before. Candidacies go on, as from a file.
        """
        self._network.handlers.pop(self.name, None)
        self._ledger.client_stopped(self)
        if keeps_name:
            self._start(self.name, self.writer.candidacy)
        else:
            self._start(f"c{self._number}.{self._life}", 0)

    def pause(self, length: int) -> None:
        self._paused_until = self._world.now + length
        self._world.after(length, self.resume)

    def resume(self) -> None:
        if self._world.now >= self._paused_until:
            inbox, self._inbox = self._inbox, []
            # A process that wakes up may run its timers before or after it reads its sockets.
            if inbox and self._chance.random() < 0.5:
                self.writer.tick(self._clock.now)
            for source, body in inbox:
                self.receive(source, body)

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        self._world.after(TICK_MS, lambda: self._tick(life))
        if self._world.now >= self._paused_until:
            self.writer.tick(self._clock.now)
            self._pump()

    def _produce(self, life: int) -> None:
        if life != self._life:
            return
        self._world.after(1 + int(self._chance.random() * 2 * self._options.append_ms), lambda: self._produce(life))
        if not self.is_producing or self._world.now < self._paused_until:
            return
        for _ in range(self._chance.choice((1, 1, 3))):
            if not self.writer.can_append(self._clock.now):
                break
            self._append_next()
        self._pump()

    def _append_next(self) -> None:
        self._payload_count += 1
        head = f"{self.stream} {self.name} {self._payload_count} ".encode()
        size = self._chance.choice(self._options.payload_bytes)
        payload = head + bytes([1 + self._payload_count % 255]) * size
        position = self.writer.append(payload, self._clock.now)
        if position is not None:
            self._ledger.appended(self, SegmentId(self.stream, position.segment_number), position, payload)

    def receive(self, source: str, body: object) -> None:
        if self._world.now < self._paused_until:
            self._inbox.append((source, body))
            return
        self._world.note(self.name, (source, type(body).__name__, body))
        if isinstance(body, Granted | Renewed | NotLeader | SegmentChanged | StreamTrimmed | Unavailable | Described):
            answer: ClientAnswer = body
            if isinstance(answer, Granted):
                self._ledger.granted(self, answer)
            self._refusal = answer.reason if isinstance(answer, Unavailable) else ""
            self.writer.control(answer, self._clock.now)
        else:
            recovery = self.writer._recovery
            if (
                isinstance(body, Sealed)
                and recovery is not None
                and recovery.replicator is None
                and (body.segment, body.epoch) == (recovery.segment, recovery.epoch)
            ):
                self._ledger.recovery_hears(source, body)
            self.writer.step(source, body, self._clock.now)  # type: ignore[arg-type]
        self._pump()

    def _pump(self) -> None:
        output = self.writer.take_output()
        for position in output.acked:
            self._acked(position)
        for message in output.messages:
            self._ledger.leader_sends(self, message)
            self._network.send(message.source, message.target, message.body)
        for request in output.requests:
            if isinstance(request, CloseSegment):
                self._ledger.segment_ends(self, SegmentId(self.stream, request.number))
            self._network.send(self.name, "m", request)

    def _acked(self, position: Position) -> None:
        self._ledger.acked(self, SegmentId(self.stream, position.segment_number), position)
        chance = self._trim_chance
        if chance.random() < self._options.trimming:
            start, life = self._start_after(position, chance), self._life
            self._world.after(chance.randint(0, TRIM_MS_MAX), lambda: self._trim(life, start))

    def _start_after(self, acked: Position, chance: Random) -> Position:
        """A random place for the start of the stream. It may be after the end of an earlier segment, or in the past."""
        number = max(1, acked.segment_number - chance.choice((0, 0, 1, 2)))
        last = acked.entry_index + 1 if number == acked.segment_number else self._options.limits.segment_entries
        return Position(number, chance.randint(1, last))

    def _trim(self, life: int, start: Position) -> None:
        if life == self._life and self._world.now >= self._paused_until and self.writer.trim(start, self._clock.now):
            self._world.fire("trim", (self.stream, start))
            self._pump()


class ReaderNode:
    """A reader that follows a stream, and now and then makes a quorum read of its last segment."""

    def __init__(
        self, number: int, stream: str, world: World, network: Network, options: Options, ledger: Ledger
    ) -> None:
        self.name = f"r{number}"
        self.stream = stream
        self._world, self._network, self._ledger = world, network, ledger
        self.reader = Reader(self.name, stream, options.limits, seed=number)
        self._records: dict[int, SegmentRecord] = {}
        self._start = FIRST_POSITION
        # The segment of the quorum read that is under way, its first entry, and its answers by store.
        self._peeked: tuple[SegmentRecord, int, dict[str, Peeked]] | None = None
        network.handlers[self.name] = self.receive
        self._tick()
        self._peek()

    def _tick(self) -> None:
        self._world.after(TICK_MS, self._tick)
        self.reader.tick(self._world.now)
        self._pump()

    def receive(self, source: str, body: object) -> None:
        self._world.note(self.name, (source, type(body).__name__, body))
        if isinstance(body, Described):
            for record in body.segments:
                self._records[record.number] = record
            self._start = max(self._start, body.start)
            self.reader.control(body, self._world.now)
        elif isinstance(body, Peeked):
            self._take_peeked(source, body)
        elif isinstance(body, Fetched | Refused):
            if isinstance(body, Fetched):
                self._ledger.fetched(self, body)
            self.reader.step(body, self._world.now)
        self._pump()

    def _pump(self) -> None:
        reader = self.reader
        messages, reader.messages = reader.messages, []
        requests, reader.requests = reader.requests, []
        deliveries, reader.deliveries = reader.deliveries, []
        for delivery in deliveries:
            self._ledger.delivered(self, delivery)
        for message in messages:
            self._network.send(message.source, message.target, message.body)
        for request in requests:
            self._network.send(self.name, "m", request)

    # --- quorum reads

    def _peek(self) -> None:
        self._world.after(QUORUM_READ_MS, self._peek)
        self._network.send(self.name, "m", Describe(self.stream))
        readable = [record for record in self._records.values() if record.base is not None]
        if readable:
            record = max(readable, key=lambda one: one.number)
            first = self._start.entry_index if record.number == self._start.segment_number else 1
            self._peeked = (record, first, {})
            for member in record.copy_set:
                self._network.send(self.name, member.store, Peek(SegmentId(self.stream, record.number), first))

    def _take_peeked(self, source: str, body: Peeked) -> None:
        if self._peeked is None or self._peeked[0].number != body.segment.number:
            return
        record, first, answers = self._peeked
        if body.first != first:
            return
        cookies = {member.store: member.cookie for member in record.copy_set}
        if cookies.get(source) != body.incarnation.cookie:
            return
        answers[source] = body
        quorum = Quorum(len(record.copy_set), record.write_quorum)
        if len(answers) >= quorum.reads:
            for entry in acknowledged(first, list(answers.values()), quorum):
                self._ledger.read_by_quorum(self, body.segment, entry)

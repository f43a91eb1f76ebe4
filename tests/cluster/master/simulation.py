"""Random schedules of clients, stores and two masters on one metadata store, with the invariants of the master.

Requests of several masters run at the same time: every commit waits before and after it takes effect, and the schedule
decides which one goes on. A master can be stopped at each of these points. Messages are delayed, repeated and lost.
Stores stop, return, start again, lose parts of replicas and drain.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from kwire.cluster.core.control import (
    BeginRecovery,
    CloseSegment,
    CreateStream,
    DrainStore,
    Granted,
    Heartbeat,
    NotLeader,
    OpenSegment,
    Renewed,
    SegmentChanged,
    SegmentRecord,
    SegmentState,
    StoreHeartbeat,
)
from kwire.cluster.core.messages import Copied, Copy, Drop, Incarnation, Message, SegmentId
from kwire.cluster.master import Master, MasterSettings, NotMaster, Outcome
from kwire.cluster.master.requests import Request
from kwire.cluster.master.state import SEGMENT_PREFIX, STREAM_PREFIX, Metadata, SegmentEntry, StreamEntry
from kwire.metastore.interface import Change, Condition, Conflict
from tests.metastore.naive import NaiveMetaStore
from tests.support.clock import ManualClock

TTL_MS = 100
SETTINGS = MasterSettings(
    lease_ttl_ms=TTL_MS,
    candidate_ttl_ms=TTL_MS,
    store_timeout_ms=50,
    store_replace_ms=80,
    copy_timeout_ms=40,
    copies_max=6,
    learner_wait_ms=50,
    free_bytes_min=1,
)
STORES = "ABCDE"
CLIENTS = ("x", "y", "z")
# Plain, and a whole log; replicas and write quorum.
STREAMS = {"plain": (3, 2, False), "log": (3, 2, True)}
HEALING_ROUNDS_MAX = 400


class Violation(AssertionError):
    """An invariant does not hold."""


class Pause:
    """A point at which a request waits until the schedule continues it."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class PausingMetaStore(NaiveMetaStore):
    """A metadata store whose commits wait before and after they take effect."""

    def __init__(self, after_commit: Callable[[], None]) -> None:
        super().__init__(ManualClock(), kept_changes_max=10)
        self._after_commit = after_commit
        self.conflicts = 0

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        await Pause()
        try:
            revision = await super().commit(changes, conditions)
        except Conflict:
            self.conflicts += 1
            raise
        self._after_commit()
        await Pause()
        return revision


class Client:
    """A client that wants to lead: it keeps the newest epoch that it was granted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.candidacy = 1
        self.epoch = 0


class Node:
    """A store as it really is. `replicas` says of each replica whether it is complete."""

    def __init__(self, name: str, cookie: int) -> None:
        self.name = name
        self.incarnation = Incarnation(cookie, 1)
        self.replicas: dict[SegmentId, bool] = {}
        # The removals of the newest Copy of each segment that this incarnation has got.
        self.removals: dict[SegmentId, int] = {}
        self.is_running = True
        self.sequence = 0

    def heartbeat(self) -> StoreHeartbeat:
        self.sequence += 1
        incomplete = tuple(segment for segment, is_complete in self.replicas.items() if not is_complete)
        return StoreHeartbeat(
            self.name, self.incarnation, 1000 - len(self.replicas), unclosed=incomplete, sequence=self.sequence
        )


class Running(NamedTuple):
    """A request that a master works on."""

    master: Master
    coroutine: Coroutine[Any, Any, Outcome]
    sent_ms: int
    request: Request | Copied | None


class Simulation:
    """One random schedule."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._has_many_repairs = seed % 2 == 1
        self.now = 1_000
        self.store = PausingMetaStore(self._check_metadata)
        self.metadata = Metadata(self.store.get)
        self.nodes = {name: Node(name, 100 + number) for number, name in enumerate(STORES)}
        self.clients = {(stream, name): Client(name) for stream in STREAMS for name in CLIENTS}
        self.running: list[Running] = []
        self.messages: list[Message] = []
        self.masters = [self._new_master(0), self._new_master(1)]
        self.counts: Counter[str] = Counter()
        self._sealed: dict[SegmentId, SegmentRecord] = {}
        self._opened: dict[SegmentId, SegmentRecord] = {}
        self._epochs: dict[str, int] = {}
        self._granted: dict[tuple[str, int], tuple[str, int]] = {}
        # Until when each client believes that it leads the stream.
        self._believed: dict[str, dict[str, int]] = {stream: {} for stream in STREAMS}

    def _new_master(self, number: int) -> Master:
        return Master(self.store, f"master{number}", SETTINGS)

    # --- the schedule

    def run(self, steps: int) -> None:
        """Half of the schedules have many requests of clients, the others many changes of stores."""
        self._prepare()
        actions: list[tuple[Callable[[], None], int, int]] = [
            (self._continue_request, 300, 300),
            (self._client_request, 150, 20),
            (self._store_heartbeat, 120, 200),
            (self._tick, 60, 100),
            (self._deliver, 150, 150),
            (self._pass_time, 80, 80),
            (self._repeat_or_lose, 20, 20),
            (self._stop_master, 3, 1),
            (self._take_over, 3, 1),
            (self._change_store, 12, 30),
        ]
        weights = [one[2] if self._has_many_repairs else one[1] for one in actions]
        for action in self.random.choices([one[0] for one in actions], weights, k=steps):
            action()
        self.counts["conflict"] = self.store.conflicts

    def _prepare(self) -> None:
        self._begin(self.masters[0], self.masters[0].start(self.now), None)
        self._finish_requests()
        for stream, (replicas, write_quorum, whole_log) in STREAMS.items():
            self._ask(self.masters[0], CreateStream(stream, replicas, write_quorum, whole_log))
        for node in self.nodes.values():
            self._ask(self.masters[0], node.heartbeat())
        self._finish_requests()
        if self._has_many_repairs:
            for stream in STREAMS:
                self._ask(self.masters[0], Heartbeat(stream, "x", 0))
                for number in (1, 2):
                    self._ask(self.masters[0], OpenSegment(stream, 1, number))
                    self._finish_requests()
                    end_index = self._end_of(SegmentId(stream, number))
                    self._ask(self.masters[0], CloseSegment(stream, 1, number, end_index))
                    self._finish_requests()

    def _ask(self, master: Master, request: Request) -> None:
        self._begin(master, master.handle(request, self.now, self.random.randrange(100)), request)

    def _begin(self, master: Master, coroutine: Coroutine[Any, Any, Any], request: Request | Copied | None) -> None:
        self._continue(Running(master, coroutine, self.now, request))

    def _continue(self, one: Running) -> None:
        try:
            one.coroutine.send(None)
        except StopIteration as stop:
            if isinstance(stop.value, Outcome):
                self._release(one, stop.value)
        except NotMaster:
            self.counts["not master"] += 1
        else:
            self.running.append(one)

    def _continue_request(self) -> None:
        if self.running:
            self._continue(self.running.pop(self.random.randrange(len(self.running))))

    def _finish_requests(self) -> None:
        while self.running:
            self._continue(self.running.pop(0))

    def _pass_time(self) -> None:
        self.now += self.random.choice((1, 2, 5, 20))

    def _any_master(self) -> Master:
        """Most often the one that may commit, sometimes the other one."""
        known = self.metadata.master()
        if known is not None and self.random.random() < 0.9:
            return next(one for one in self.masters if one.name == known.value.name)
        return self.random.choice(self.masters)

    def _stop_master(self) -> None:
        """Stop a master with all its requests, before or after their commits, and let it start again."""
        number = self.random.randrange(2)
        for one in [one for one in self.running if one.master is self.masters[number]]:
            one.coroutine.close()
            self.running.remove(one)
        self.masters[number] = self._new_master(number)
        self._begin(self.masters[number], self.masters[number].start(self.now), None)
        self.counts["master stopped"] += 1

    def _take_over(self) -> None:
        master = self._any_master()
        self._begin(master, master.start(self.now), None)
        self.counts["master took over"] += 1

    # --- clients

    def _client_request(self) -> None:
        stream, name = self.random.choice(list(self.clients))
        client = self.clients[stream, name]
        if self.random.random() < 0.03:
            # The client starts again, and has forgotten its epoch.
            client.epoch = 0
            client.candidacy += 1
        epoch = client.epoch
        if not epoch or self.random.random() < 0.4:
            request: Request = Heartbeat(
                stream, name, epoch, candidacy=client.candidacy, store=self.random.choice((*STORES, ""))
            )
        else:
            entry = self.metadata.stream(stream)
            assert entry is not None
            number = max(entry.value.last + self.random.choice((-1, 0, 0, 1, 1)), 1)
            avoid = tuple(self.random.sample(STORES, self.random.choice((0, 0, 1))))
            request = self.random.choice(
                (
                    OpenSegment(stream, epoch, entry.value.last + 1, avoid),
                    OpenSegment(stream, epoch, number),
                    BeginRecovery(stream, epoch, number),
                    CloseSegment(stream, epoch, number, self._end_of(SegmentId(stream, number))),
                    CloseSegment(stream, epoch, number, self._end_of(SegmentId(stream, number))),
                )
            )
        self._ask(self._any_master(), request)

    @staticmethod
    def _end_of(segment: SegmentId) -> int:
        """All recoveries of a segment find the same end."""
        return 1 + segment.number * 7 % 5

    # --- stores

    def _store_heartbeat(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.is_running:
            self._ask(self._any_master(), node.heartbeat())

    def _tick(self) -> None:
        master = self._any_master()
        self._begin(master, master.tick(self.now, self.random.randrange(100)), None)

    def _deliver(self) -> None:
        if self.messages:
            number = self.random.randrange(len(self.messages))
            # Drops are often late.
            if not isinstance(self.messages[number].body, Drop) or self.random.random() < 0.2:
                self._receive(self.messages.pop(number))

    def _repeat_or_lose(self) -> None:
        if self.messages:
            message = self.random.choice(self.messages)
            if self.random.random() < 0.5:
                self.messages.append(message)
                self.counts["message repeated"] += 1
            else:
                self.messages.remove(message)
                self.counts["message lost"] += 1

    def _receive(self, message: Message) -> None:
        body = message.body
        if isinstance(body, Copied):
            master = self._any_master()
            self._begin(master, master.handle_copied(message.source, body, self.now), body)
            return
        node = self.nodes[message.target]
        if not node.is_running:
            return
        if isinstance(body, Drop):
            if body.incarnation == node.incarnation and node.removals.get(body.segment, 0) < body.removal:
                self.counts["dropped"] += node.replicas.pop(body.segment, None) is not None
                self._check_copies()
        elif isinstance(body, Copy):
            node.removals[body.segment] = max(body.removals, node.removals.get(body.segment, 0))
            if not node.replicas.get(body.segment):
                sources = [self.nodes[one] for one in body.sources]
                if not any(one.is_running and one.replicas.get(body.segment) for one in sources):
                    node.replicas.setdefault(body.segment, False)
                    return
                self.counts["copied"] += 1
            node.replicas[body.segment] = True
            digest = crc32(repr(body.segment).encode())
            report = Copied(body.segment, body.end, node.incarnation, digest, removals=node.removals[body.segment])
            self.messages.append(Message(node.name, message.source, report))

    def _change_store(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        kind = self.random.choice(("stop", "start", "restart", "damage", "drain", "drain", "use", "use"))
        if kind == "stop" and sum(one.is_running for one in self.nodes.values()) > 3:
            node.is_running = False
        elif kind in ("start", "restart"):
            if kind == "restart" or (not node.is_running and self.random.random() < 0.5):
                node.incarnation = node.incarnation._replace(start=node.incarnation.start + 1)
                node.removals.clear()
            node.is_running = True
        elif kind == "damage":
            self._damage(node)
        elif kind in ("drain", "use"):
            self._ask(self._any_master(), DrainStore(node.name, kind == "drain"))
        self.counts[kind] += 1

    def _damage(self, node: Node) -> None:
        """Damage a replica that is not needed for the write quorum. More would be a loss that no master can prevent."""
        for segment, is_complete in node.replicas.items():
            if is_complete and self._complete_count(segment) > 2 and self.random.random() < 0.5:
                node.replicas[segment] = False
                # The store notices the damage before it sends its next report.
                self.messages = [
                    one
                    for one in self.messages
                    if not (isinstance(one.body, Copied) and one.source == node.name and one.body.segment == segment)
                ]
                for master in self.masters:
                    self._ask(master, node.heartbeat())
                return

    # --- answers

    def _release(self, one: Running, outcome: Outcome) -> None:
        if outcome.alarms:
            raise Violation(f"an alarm: {outcome.alarms}")
        self.messages += outcome.messages
        answer = outcome.answer
        if answer is None or isinstance(one.request, Copied):
            return
        self.counts[type(answer).__name__] += 1
        if self.random.random() < 0.1:
            self.counts["answer lost"] += 1
            return
        match one.request, answer:
            case Heartbeat(), Granted() | Renewed():
                self._lead(one, one.request, answer)
            case Heartbeat(), NotLeader():
                client = self.clients[one.request.stream, one.request.client]
                if one.request.epoch and client.epoch == one.request.epoch:
                    client.epoch = 0
                    client.candidacy += 1
            case OpenSegment() | BeginRecovery() | CloseSegment(), SegmentChanged():
                if answer.epoch != one.request.epoch:
                    raise Violation(f"epoch {one.request.epoch} has changed a segment of epoch {answer.epoch}")
                segment = self.metadata.segment(SegmentId(answer.stream, answer.record.number))
                if segment is None or segment.value.record.opened_by_epoch != answer.record.opened_by_epoch:
                    raise Violation(f"{answer} was released, but is not stored")
            case _:
                pass

    def _lead(self, one: Running, request: Heartbeat, answer: Granted | Renewed) -> None:
        client = self.clients[request.stream, request.client]
        if isinstance(answer, Granted):
            holder = (request.client, request.candidacy)
            if self._granted.setdefault((answer.stream, answer.epoch), holder) != holder:
                raise Violation(f"I4: epoch {answer.epoch} of {answer.stream} was granted twice")
            if request.candidacy == client.candidacy and answer.epoch > client.epoch:
                client.epoch = answer.epoch
        believed = self._believed[request.stream]
        for other, until_ms in believed.items():
            if other != request.client and until_ms > one.sent_ms and isinstance(answer, Granted):
                raise Violation(f"S4-15: {request.client} leads {request.stream} during the lease of {other}")
        believed[request.client] = max(one.sent_ms + answer.ttl_ms, believed.get(request.client, 0))

    # --- invariants

    def _check_metadata(self) -> None:
        for _, found in self.store.entries(STREAM_PREFIX):
            stream = self.metadata.stream(found.value["name"])
            assert stream is not None
            self._check_stream(stream.value)
        for _, found in self.store.entries(SEGMENT_PREFIX):
            entry = self.metadata.segment(SegmentId(found.value["stream"], found.value["record"]["number"]))
            assert entry is not None
            self._check_segment(entry.value)
        self._check_copies()

    def _check_stream(self, stream: StreamEntry) -> None:
        if stream.epoch < self._epochs.get(stream.name, 0):
            raise Violation(f"I4: the epoch of {stream.name} went back to {stream.epoch}")
        self._epochs[stream.name] = stream.epoch
        records = self.metadata.records(stream, 1)
        unsealed = [one.number for one in records if one.state is not SegmentState.SEALED]
        if len(unsealed) > 2 or tuple(unsealed) != stream.unsealed or len(records) != stream.last:
            raise Violation(f"I17: {stream.name} has the unsealed segments {unsealed} of {stream.last}")
        base: int | None = 0
        for record in records:
            if record.base != base:
                raise Violation(f"I22: segment {record.number} of {stream.name} has the base {record.base}, not {base}")
            # All entries before the bridge count.
            base = None if base is None or record.end_index is None else base + record.end_index - 1

    def _check_segment(self, entry: SegmentEntry) -> None:
        record = entry.record
        if len({one.store for one in record.copy_set}) < len(record.copy_set):
            raise Violation(f"a store is in the copy set of {entry.id} twice")
        if record.state is not SegmentState.SEALED:
            first = self._opened.setdefault(entry.id, record)
            if (first.copy_set, first.opened_by_epoch) != (record.copy_set, record.opened_by_epoch):
                raise Violation(f"B24: the copy set of the open segment {entry.id} has changed")
            return
        if entry.id not in self._sealed:
            self._sealed[entry.id] = record
            self._fill(entry)
        first = self._sealed[entry.id]
        if (first.base, first.end_index, first.end_epoch, first.opened_by_epoch) != (
            record.base,
            record.end_index,
            record.end_epoch,
            record.opened_by_epoch,
        ):
            raise Violation(f"I18: the sealed segment {entry.id} has changed")

    def _fill(self, entry: SegmentEntry) -> None:
        """A segment is closed when as many members as its write quorum have all of it. The others have parts."""
        members = [one.store for one in entry.record.copy_set]
        complete = set(self.random.sample(members, entry.record.write_quorum))
        for name in members:
            self.nodes[name].replicas[entry.id] = name in complete

    def _complete_count(self, segment: SegmentId) -> int:
        entry = self.metadata.segment(segment)
        assert entry is not None
        members = [one.store for one in entry.value.record.copy_set]
        return sum(self.nodes[one].replicas.get(segment, False) for one in members)

    def _check_copies(self) -> None:
        for segment, record in self._sealed.items():
            if self._complete_count(segment) < record.write_quorum:
                raise Violation(
                    f"I19: the sealed segment {segment} has {self._complete_count(segment)} complete copies"
                )

    # --- the end

    def heal(self) -> None:
        """Stop all faults. Then every sealed segment gets all its copies, and every stream a leader and a segment."""
        for node in self.nodes.values():
            node.is_running = True
        for one in self.running:
            one.coroutine.close()
        self.running = []
        master = self.masters[0]
        self._begin(master, master.start(self.now), None)
        self._finish_requests()
        for node in self.nodes.values():
            self._ask(master, DrainStore(node.name, False))
        for _ in range(HEALING_ROUNDS_MAX):
            for node in self.nodes.values():
                self._ask(master, node.heartbeat())
            self._begin(master, master.tick(self.now), None)
            self._finish_requests()
            while self.messages:
                self._receive(self.messages.pop(0))
                self._finish_requests()
            self.now += 20
            if not self._unsettled() and self._serve_streams(master):
                return
        raise Violation(f"I26: not repaired after the faults: {self._unsettled()}")

    def _unsettled(self) -> list[SegmentId]:
        return [
            segment
            for segment in self._sealed
            if self._complete_count(segment) != STREAMS[segment.stream][0]
            or self._replica_count(segment) != STREAMS[segment.stream][0]
        ]

    def _replica_count(self, segment: SegmentId) -> int:
        return sum(segment in one.replicas for one in self.nodes.values())

    def _serve_streams(self, master: Master) -> bool:
        """Whether each stream has a leader that closes all its segments and opens one."""
        for stream in STREAMS:
            client = self.clients[stream, "x"]
            client.candidacy += 1
            granted = self._finished(master, Heartbeat(stream, "x", 0, candidacy=client.candidacy))
            if not isinstance(granted, Granted):
                return False
            for record in granted.segments:
                if record.state is not SegmentState.SEALED:
                    self._finished(master, BeginRecovery(stream, granted.epoch, record.number))
                    end_index = self._end_of(SegmentId(stream, record.number))
                    self._finished(master, CloseSegment(stream, granted.epoch, record.number, end_index))
            entry = self.metadata.stream(stream)
            assert entry is not None
            opened = self._finished(master, OpenSegment(stream, granted.epoch, entry.value.last + 1))
            if not isinstance(opened, SegmentChanged) or len(opened.record.copy_set) < STREAMS[stream][1]:
                return False
        return True

    def _finished(self, master: Master, request: Request) -> object:
        coroutine = master.handle(request, self.now)
        while True:
            try:
                coroutine.send(None)
            except StopIteration as stop:
                return stop.value.answer

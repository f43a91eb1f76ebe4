"""The master: it reads the metadata, decides, commits, and then releases the answer.

Only one master may commit at a time. A master that takes over writes a new term; every later commit of the earlier one
is refused. If the outcome of a commit is unknown, the master stops until it has taken over again: then the commit is
either visible or will never be.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from kwire.cluster.core.control import (
    AdminRequest,
    BeginRecovery,
    ClientRequest,
    CloseSegment,
    CreateStream,
    Describe,
    Described,
    DrainStore,
    Heartbeat,
    OpenSegment,
    SegmentState,
    StoreAccepted,
    StoreHeartbeat,
    Unavailable,
)
from kwire.cluster.core.messages import Message
from kwire.cluster.master.copy_sets import choose_copy_set, is_about_to_join, must_roll
from kwire.cluster.master.decisions import Answer, Decision
from kwire.cluster.master.elections import decide_heartbeat
from kwire.cluster.master.liveness import Candidate, Candidates, Heard, Leases
from kwire.cluster.master.replica_index import ReplicaIndex
from kwire.cluster.master.segments import decide_closing, decide_creation, decide_opening, decide_recovery
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import (
    MASTER_KEY,
    SEGMENT_PREFIX,
    STORE_PREFIX,
    STREAM_PREFIX,
    MasterEntry,
    Metadata,
    SegmentEntry,
    StoreEntry,
    StreamEntry,
    Versioned,
    created,
)
from kwire.cluster.master.stores import StoreStatus, decide_drain, decide_registration, status_of
from kwire.metastore.interface import ABSENT, Change, Condition, Conflict, MetaStore

log = logging.getLogger("kwire.cluster.master")

# How often a decision is taken again after another commit has changed its metadata. Then the client has to ask again.
ATTEMPTS_MAX: Final = 10

Request = ClientRequest | StoreHeartbeat | AdminRequest


class NotMaster(Exception):
    """Another master has taken over, or this one has not. Requests go to the other one."""


class Outcome(Struct, frozen=True):
    """The answer to a request, messages to stores, and facts that an operator has to know.

    `answer` is None if there is none, or if the sender repeats its request anyway.
    """

    answer: Answer | None
    messages: tuple[Message, ...] = ()
    alarms: tuple[str, ...] = ()


class Master:
    """A master on a metadata store. It takes over with `start`.

    Its methods can run at the same time. `now` is in milliseconds of a clock that only goes forward, and `choice` is a
    number that decides between equal candidates or stores; a caller that wants chance passes a random one.
    """

    def __init__(self, store: MetaStore, name: str, settings: MasterSettings | None = None) -> None:
        self.name = name
        self._store = store
        self._settings = settings or MasterSettings()
        self._metadata = Metadata(store.get)
        # The revision of the entry with this master's term, while it is the master.
        self._term_revision: int | None = None

    # --- taking over

    async def start(self, now: int) -> None:
        """Take over from the master before. Raises NotMaster if others do so at the same time, again and again."""
        self._term_revision = None
        for _ in range(ATTEMPTS_MAX):
            known = self._metadata.master()
            if known is None:
                change = created(MASTER_KEY, MasterEntry(self.name, 1))
            else:
                change = known.changed(MasterEntry(self.name, known.value.term + 1))
            try:
                revision = await self._store.commit([change])
            except Conflict:
                continue
            self._load(now)
            self._term_revision = revision
            return
        raise NotMaster(f"{self.name} could not take over: other masters have done so {ATTEMPTS_MAX} times")

    def _load(self, now: int) -> None:
        self._leases = Leases()
        self._candidates = Candidates(self._settings.candidate_ttl_ms)
        self._heard = Heard(now)
        self._index = ReplicaIndex()
        self._sealed_ms: dict[str, int] = {}
        self._stream_count = 0
        for _, entry in self._store.entries(STREAM_PREFIX):
            stream = msgspec.convert(entry.value, StreamEntry)
            self._stream_count += 1
            if stream.leader is not None:
                # The time that an earlier master may have promised begins now.
                self._leases.is_live(stream.name, stream.epoch, stream.leader.ttl_ms, now)
        for _, entry in self._store.entries(SEGMENT_PREFIX):
            self._index.put(msgspec.convert(entry.value, SegmentEntry))
        self._store_names = dict.fromkeys(
            key.removeprefix(STORE_PREFIX) for key, _ in self._store.entries(STORE_PREFIX)
        )

    # --- requests

    async def handle(self, request: Request, now: int, choice: int = 0) -> Outcome:
        """Answer a request when everything that the answer says is durable. Raises NotMaster."""
        if isinstance(request, StoreHeartbeat):
            outcome = await self._decided(lambda: self._registration(request))
            if isinstance(outcome.answer, StoreAccepted):
                self._store_names[request.store] = None
                self._heard.hear(request, now)
            return outcome
        if isinstance(request, DrainStore):
            return await self._decided(lambda: decide_drain(request, self._metadata.store(request.store)))
        if isinstance(request, CreateStream):
            return await self._decided(
                lambda: decide_creation(request, self._metadata.stream(request.stream), self._stream_count)
            )
        outcome = await self._decided(lambda: self._client_decision(request, now, choice))
        if outcome.answer is None:
            return Outcome(Unavailable(request.stream, 0, "the metadata of the stream changes too often"))
        return outcome

    def _registration(self, request: StoreHeartbeat) -> Decision:
        known = self._metadata.store(request.store)
        others = (one.value for one in self._stores() if one.value.name != request.store)
        return decide_registration(request, known, others)

    def _client_decision(self, request: ClientRequest, now: int, choice: int) -> Decision:
        stream = self._metadata.stream(request.stream)
        if stream is None:
            return Decision(Unavailable(request.stream, 0, "the stream does not exist"))
        match request:
            case Heartbeat():
                return self._heartbeat(request, stream, now, choice)
            case OpenSegment():
                return self._opening(request, stream, now, choice)
            case BeginRecovery():
                return decide_recovery(request, stream, self._metadata)
            case CloseSegment():
                decision = decide_closing(request, stream, self._metadata)
                if decision.changes:
                    self._sealed_ms[request.stream] = now
                return decision
            case Describe():
                records = self._metadata.records(stream.value, request.first)
                return Decision(Described(request.stream, stream.value.epoch, records, stream.value.last))

    def _heartbeat(self, request: Heartbeat, stream: Versioned[StreamEntry], now: int, choice: int) -> Decision:
        last = self._metadata.last_segment(stream.value)

        def hosts_replica(candidate: Candidate) -> bool:
            store = self._status(candidate.store, now)
            if last is None or store is None or not store.is_usable:
                return False
            return store.member in last.value.record.copy_set and store.vouches_for(last.value.id)

        def rolls() -> bool:
            return last is not None and must_roll(
                stream.value, last.value, self._statuses(now), self._index, self._settings
            )

        return decide_heartbeat(
            request,
            stream,
            () if request.epoch else self._metadata.last_records(stream.value),
            hosts_replica,
            rolls,
            self._leases,
            self._candidates,
            self._settings,
            now,
            choice,
        )

    def _opening(self, request: OpenSegment, stream: Versioned[StreamEntry], now: int, choice: int) -> Decision:
        entry = stream.value
        last = self._metadata.last_segment(entry)
        stores = self._statuses(now)
        copy_set = choose_copy_set(
            entry, last.value if last else None, stores, self._index, request.avoid, self._settings, choice
        )
        wait_reason = ""
        if (
            entry.whole_log
            and last is not None
            and last.value.record.state is SegmentState.SEALED
            and entry.write_quorum <= len(copy_set) < entry.replicas
            and now < self._sealed_ms.get(entry.name, now) + self._settings.learner_wait_ms
            and is_about_to_join(entry, last.value.record, stores, self._index)
        ):
            wait_reason = f"a store that joins the copy set still copies segment {entry.last}"
        return decide_opening(request, stream, self._metadata, copy_set, wait_reason)

    # --- stores

    def _stores(self) -> list[Versioned[StoreEntry]]:
        found = (self._metadata.store(name) for name in self._store_names)
        return [one for one in found if one is not None]

    def _statuses(self, now: int) -> list[StoreStatus]:
        return [self._judge(one.value, now) for one in self._stores()]

    def _status(self, name: str, now: int) -> StoreStatus | None:
        store = self._metadata.store(name)
        return self._judge(store.value, now) if store is not None else None

    def _judge(self, store: StoreEntry, now: int) -> StoreStatus:
        return status_of(store, self._heard, self._index.load(store.name), self._settings, now)

    # --- commits

    async def _decided(self, decide: Callable[[], Decision]) -> Outcome:
        """Decide and commit. After a conflict decide again; after ATTEMPTS_MAX conflicts there is no answer."""
        for _ in range(ATTEMPTS_MAX):
            term = self._current_term()
            decision = decide()
            if decision.changes and not await self._commit(decision, term):
                continue
            self._remember(decision)
            for alarm in decision.alarms:
                log.error("%s", alarm)
            messages = tuple(Message(self.name, one.store, one.body) for one in decision.orders)
            return Outcome(decision.answer, messages, decision.alarms)
        return Outcome(None)

    def _current_term(self) -> Condition:
        known = self._metadata.master()
        if self._term_revision is None or known is None or known.revision != self._term_revision:
            self._term_revision = None
            raise NotMaster(f"{self.name} is not the master")
        return known.unchanged()

    async def _commit(self, decision: Decision, term: Condition) -> bool:
        """Commit the changes. Returns false if nothing was changed, because the metadata was no longer as read."""
        election = decision.lease
        leases = self._leases
        if election is not None:
            leases.begin_election(election.stream)
        try:
            await self._store.commit(decision.changes, (*decision.conditions, term))
        except Conflict:
            return False
        except BaseException:
            # The commit may still become visible. Only a new term excludes that.
            self._term_revision = None
            raise
        finally:
            if election is not None:
                leases.end_election(election.stream)
        return True

    def _remember(self, decision: Decision) -> None:
        if decision.lease is not None:
            self._leases.extend(decision.lease)
        for change in decision.changes:
            self._remember_change(change)

    def _remember_change(self, change: Change) -> None:
        if change.key.startswith(STREAM_PREFIX):
            self._stream_count += change.expected_revision == ABSENT
        elif change.key.startswith(SEGMENT_PREFIX):
            # A later commit may have been faster with its return.
            segment = self._metadata.segment(msgspec.convert(change.value, SegmentEntry).id)
            if segment is not None:
                self._index.put(segment.value)

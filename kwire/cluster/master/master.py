"""The master: it reads the metadata, decides, commits, and then releases the answer.

Only one master may commit at a time. A master that takes over writes a new term; every later commit of the earlier one
is refused. If the outcome of a commit is unknown, the master stops until it has taken over again: then the commit is
either visible or will never be.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct

from kwire.cluster.core.control import (
    BeginRecovery,
    CloseSegment,
    Describe,
    Heartbeat,
    OpenSegment,
    StoreAccepted,
    StoreHeartbeat,
    TrimStream,
    Unavailable,
)
from kwire.cluster.core.messages import Copied, Message, SegmentId
from kwire.cluster.master.cluster_view import ClusterView
from kwire.cluster.master.decisions import Answer, Decision
from kwire.cluster.master.repair.rounds import RepairRounds
from kwire.cluster.master.requests import Request, decide
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import MASTER_KEY, MasterEntry, Metadata, created
from kwire.metastore.interface import Condition, Conflict, MetaStore

log = logging.getLogger("kwire.cluster.master")

# How often a decision is taken again after another commit has changed its metadata. Then the client has to ask again.
ATTEMPTS_MAX: Final = 10


class NotMaster(Exception):
    """Another master has taken over, or this one has not. Requests go to the other one."""


class Outcome(Struct, frozen=True):
    """The answer to a request, messages to stores, and facts that must not occur, in words for an operator.

    `answer` is None if there is none, or if the sender repeats its request anyway.
    """

    answer: Answer | None
    messages: tuple[Message, ...] = ()
    alarms: tuple[str, ...] = ()


class _Term(Struct, frozen=True):
    """The time in which this master may commit: as long as the master's entry has this revision."""

    revision: int
    view: ClusterView
    repairs: RepairRounds


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
        self._term: _Term | None = None

    async def start(self, now: int) -> None:
        """Take over from the master before. Raises NotMaster if others do so at the same time, again and again."""
        self._term = None
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
            view = ClusterView(self._store, self._settings, now)
            self._term = _Term(revision, view, RepairRounds(view, now))
            return
        raise NotMaster(f"{self.name} could not take over: other masters have done so {ATTEMPTS_MAX} times")

    async def handle(self, request: Request, now: int, choice: int = 0) -> Outcome:
        """Answer a request when everything that the answer says is durable. Raises NotMaster."""
        outcome = await self._decided(lambda term: decide(request, term.view, now, choice))
        if isinstance(request, StoreHeartbeat) and isinstance(outcome.answer, StoreAccepted):
            self._current_term().view.hear(request, now)
        if outcome.answer is None and isinstance(
            request, Heartbeat | OpenSegment | BeginRecovery | CloseSegment | TrimStream | Describe
        ):
            return Outcome(Unavailable(request.stream, 0, "the metadata of the stream changes too often"))
        return outcome

    async def handle_copied(self, store: str, report: Copied, now: int) -> Outcome:
        """Take the report of a store that it has a whole sealed segment. Raises NotMaster."""
        outcome = await self._decided(lambda term: term.repairs.decide_copied(store, report, now))
        self._current_term().view.repairs.end_copy(report.segment, store)
        return outcome

    async def tick(self, now: int, choice: int = 0) -> Outcome:
        """Look at some of the sealed segments that lack copies, and order what they need. Raises NotMaster.

        The caller does so several times in `store_timeout_ms`.
        """
        term = self._current_term()
        term.repairs.judge_stores(now)
        outcomes = [
            await self._decided(partial(_decide_repair, segment=segment, now=now, choice=choice))
            for segment in term.view.repairs.next_segments()
        ]
        outcomes += [
            await self._decided(partial(_decide_drop, store=store, segment=segment, now=now))
            for store, segment in term.view.repairs.next_drops()
        ]
        return Outcome(None, tuple(message for one in outcomes for message in one.messages))

    # --- commits

    async def _decided(self, decide: Callable[[_Term], Decision]) -> Outcome:
        """Decide and commit. After a conflict decide again; after ATTEMPTS_MAX conflicts the request fails."""
        term = self._current_term()
        for _ in range(ATTEMPTS_MAX):
            if self._current_term() is not term:
                # The time of the request is older than the term.
                raise NotMaster(f"{self.name} has taken over again")
            decision = decide(term)
            if decision.changes and not await self._commit(decision, term):
                continue
            if decision.lease is not None:
                term.view.leases.extend(decision.lease)
            for change in decision.changes:
                term.view.remember(change)
            for alarm in decision.alarms:
                log.error("%s", alarm)
            messages = tuple(Message(self.name, one.store, one.body) for one in decision.orders)
            return Outcome(decision.answer, messages, decision.alarms)
        return Outcome(None)

    def _current_term(self) -> _Term:
        known = self._metadata.master()
        if self._term is None or known is None or known.revision != self._term.revision:
            self._term = None
            raise NotMaster(f"{self.name} is not the master")
        return self._term

    async def _commit(self, decision: Decision, term: _Term) -> bool:
        """Commit the changes. Returns false if nothing was changed, because the metadata was no longer as read."""
        conditions = (*decision.conditions, Condition(MASTER_KEY, term.revision))
        election = decision.lease
        if election is not None:
            term.view.leases.begin_election(election.stream)
        try:
            await self._store.commit(decision.changes, conditions)
        except Conflict:
            return False
        except BaseException:
            # The commit may still become visible. Only a new term excludes that.
            self._term = None
            raise
        finally:
            if election is not None:
                term.view.leases.end_election(election.stream)
        return True


def _decide_repair(term: _Term, segment: SegmentId, now: int, choice: int) -> Decision:
    return term.repairs.decide_repair(segment, now, choice)


def _decide_drop(term: _Term, store: str, segment: SegmentId, now: int) -> Decision:
    return term.repairs.decide_drop(store, segment, now)

"""A history sorted by what it is about: transactions, the log, readers, groups. The checks read this."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.support.history import (
    Acknowledged,
    AnyEvent,
    Begun,
    EndAsked,
    Ended,
    FinalLog,
    GroupOffsetRead,
    Isolation,
    OffsetSent,
    Outcome,
    Passed,
    Place,
    ProducerAsked,
    ProducerReady,
    Read,
    ReaderStarted,
    Sent,
)

FINAL_READER = "the final reader"


@dataclass
class Transaction:
    """All that its producer did and was told."""

    name: str
    transactional_id: str
    incarnation: int
    begun_at: float
    timeout_s: float
    sent: list[Sent] = field(default_factory=list)
    offsets: list[OffsetSent] = field(default_factory=list)
    commit_asked_at: float = inf
    abort_asked_at: float = inf
    ended_at: float = inf
    outcome: Outcome | None = None
    # Since when somebody else surely has its transactional id, and since when somebody may have it.
    fenced_at: float = inf
    rivalled_at: float = inf

    @property
    def must_commit(self) -> bool:
        return self.outcome is Outcome.COMMITTED

    @property
    def may_commit(self) -> bool:
        """Commit was asked for in time, and no confirmed abort says that it was not done.

        A producer that is fenced while it commits does not know either: the call that was refused may have repeated one
        that was lost on its way back.
        """
        is_asked = self.commit_asked_at < self.fenced_at
        return self.must_commit or (is_asked and self.outcome is not Outcome.ABORTED)

    @property
    def open_until(self) -> float:
        """Before this moment nobody but a server gone wrong has ended it."""
        return min(self.commit_asked_at, self.abort_asked_at, self.rivalled_at, self.begun_at + self.timeout_s)

    def __str__(self) -> str:
        asked = "commit asked" if self.commit_asked_at < inf else "commit never asked"
        return f"{self.name} ({asked}, {self.outcome or 'no end'})"


class Observation(NamedTuple):
    """A committed record as one reader saw it."""

    reader: str
    place: Place
    offset: int
    value: str
    at: float


def told(seen: Observation) -> str:
    return f"{seen.reader} got {seen.value} at {seen.place}@{seen.offset}"


def listed(offsets: Iterable[tuple[Place, int]]) -> str:
    return ", ".join(f"{place}@{offset}" for place, offset in sorted(offsets))


@dataclass
class Reading:
    """One reader in one partition: where it began, and its reads and positions in the order they came."""

    reader: str
    place: Place
    start: int | None = None
    steps: list[Read | Passed] = field(default_factory=list)

    @property
    def reads(self) -> Iterator[Read]:
        return (step for step in self.steps if isinstance(step, Read))

    @property
    def position(self) -> int:
        """Everything from the start up to here was passed."""
        return max((reached(step) for step in self.steps), default=self.start or 0)


def reached(step: Read | Passed) -> int:
    return step.offset + 1 if isinstance(step, Read) else step.position


class HistoryView:
    """See the module's words."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.sent: dict[str, Sent] = {}
        self.acknowledged: list[Acknowledged] = []
        self.readings: dict[tuple[str, Place], Reading] = {}
        self.group_reads: list[GroupOffsetRead] = []
        self.final: dict[Isolation, dict[Place, FinalLog]] = {isolation: {} for isolation in Isolation}
        self.events = sorted(events, key=lambda event: event.at)
        self._rivals: dict[str, list[ProducerAsked | ProducerReady]] = defaultdict(list)
        for event in self.events:
            self._take(event)
        for transaction in self.transactions.values():
            rivals = [
                one for one in self._rivals[transaction.transactional_id] if one.incarnation > transaction.incarnation
            ]
            transaction.rivalled_at = min((one.at for one in rivals), default=inf)
            transaction.fenced_at = min((one.at for one in rivals if isinstance(one, ProducerReady)), default=inf)
        self.committed = self._records(Isolation.COMMITTED)
        self.log = self._records(Isolation.UNCOMMITTED)
        self.committed_values = frozenset(value for records in self.committed.values() for value in records.values())
        self.offsets_in_log: dict[str, list[tuple[Place, int]]] = defaultdict(list)
        for place, records in self.log.items():
            for offset, value in records.items():
                self.offsets_in_log[value].append((place, offset))

    def _take(self, event: AnyEvent) -> None:
        match event:
            case ProducerAsked() | ProducerReady():
                self._rivals[event.transactional_id].append(event)
            case Begun():
                assert event.transaction not in self.transactions, f"{event.transaction} is begun twice"
                self.transactions[event.transaction] = Transaction(
                    event.transaction, event.transactional_id, event.incarnation, event.at, event.timeout_s
                )
            case Sent():
                assert event.value not in self.sent, f"the value {event.value} is sent twice"
                self.sent[event.value] = event
                self.transactions[event.transaction].sent.append(event)
            case Acknowledged():
                self.acknowledged.append(event)
            case OffsetSent():
                self.transactions[event.transaction].offsets.append(event)
            case EndAsked():
                transaction = self.transactions[event.transaction]
                if event.is_commit:
                    transaction.commit_asked_at = min(transaction.commit_asked_at, event.at)
                else:
                    transaction.abort_asked_at = min(transaction.abort_asked_at, event.at)
            case Ended():
                transaction = self.transactions[event.transaction]
                transaction.outcome, transaction.ended_at = event.outcome, event.at
            case ReaderStarted():
                self._reading(event.reader, event.place).start = event.position
            case Read() | Passed():
                self._reading(event.reader, event.place).steps.append(event)
            case GroupOffsetRead():
                self.group_reads.append(event)
            case FinalLog():
                self.final[event.isolation][event.place] = event

    def _reading(self, reader: str, place: Place) -> Reading:
        return self.readings.setdefault((reader, place), Reading(reader, place))

    def _records(self, isolation: Isolation) -> dict[Place, dict[int, str]]:
        return {place: dict(log.records) for place, log in self.final[isolation].items()}

    def transaction_of(self, value: str) -> Transaction | None:
        sent = self.sent.get(value)
        return None if sent is None else self.transactions[sent.transaction]

    def observations(self) -> Iterator[Observation]:
        """Every committed record that any reader was given, the final read included."""
        for reading in self.readings.values():
            for read in reading.reads:
                yield Observation(read.reader, read.place, read.offset, read.value, read.at)
        for place, log in self.final[Isolation.COMMITTED].items():
            for offset, value in log.records:
                yield Observation(FINAL_READER, place, offset, value, log.at)


class RunningMaximum:
    """Of things with a place and a weight: the heaviest one below a place."""

    def __init__(self, things: Iterable[tuple[int, float, str]]) -> None:
        self._places: list[int] = []
        self._heaviest: list[tuple[float, str]] = []
        heaviest = (-inf, "")
        for place, weight, name in sorted(things):
            heaviest = max(heaviest, (weight, name))
            self._places.append(place)
            self._heaviest.append(heaviest)

    def below(self, place: int) -> tuple[float, str]:
        index = bisect_left(self._places, place)
        return self._heaviest[index - 1] if index else (-inf, "")

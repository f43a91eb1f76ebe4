"""Histories of a server that keeps every promise: what the checker must let pass, and what anomalies are planted in.

Producers, a program that reads and writes, and readers take turns by chance. Transactions are committed, aborted, left
alone, fenced, and ended without the producer learning how.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.support.history import (
    Acknowledged,
    AnyEvent,
    Begun,
    EndAsked,
    Ended,
    FinalLog,
    GroupOffsetRead,
    History,
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
    Source,
)

INPUTS = (Place("in", 0), Place("in", 1))
DATA = (Place("data", 0), Place("data", 1), Place("data", 2))
OUTPUTS = (Place("out", 0), Place("out", 1))
GROUP = "group"
TIMEOUT_S = 1e6
TURNS_MAX = 200_000
# Every history has each of these at least once, so that everything can be planted in every one.
ENDINGS = (
    *("commit", "commit", "commit", "abort", "abort", "unknown, committed", "unknown, aborted", "abort of unknown end"),
    *("fenced", "fenced, committed", "abandoned"),
)
Turns = Iterator[None]


class Entry(NamedTuple):
    """A record, or the marker that ends a transaction in a partition."""

    transaction: str
    value: str | None


class HonestLog:
    """One partition as it should be."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first_offsets: dict[str, int] = {}
        self.committed: set[str] = set()

    def append(self, transaction: str, value: str) -> int:
        self.first_offsets.setdefault(transaction, len(self.entries))
        self.entries.append(Entry(transaction, value))
        return len(self.entries) - 1

    def mark(self, transaction: str, is_commit: bool) -> None:
        self.entries.append(Entry(transaction, None))
        self.first_offsets.pop(transaction, None)
        if is_commit:
            self.committed.add(transaction)

    @property
    def last_stable_offset(self) -> int:
        return min(self.first_offsets.values(), default=len(self.entries))

    def records(self, isolation: Isolation, start: int = 0, count_max: int = TURNS_MAX) -> list[tuple[int, str]]:
        is_committed = isolation is Isolation.COMMITTED
        end = self.last_stable_offset if is_committed else len(self.entries)
        found = [
            (offset, entry.value)
            for offset, entry in enumerate(self.entries[start:end], start)
            if entry.value is not None and (not is_committed or entry.transaction in self.committed)
        ]
        return found[:count_max]


class HonestWorld:
    """One history; a seed repeats it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self.history = History(clock=self._tick)
        self.logs = {place: HonestLog() for place in (*INPUTS, *DATA, *OUTPUTS)}
        self.group_offsets = dict.fromkeys(INPUTS, -1)
        # By transaction: where markers are still to be written; None stands for the group's position.
        self.markers: dict[str, list[Place | None]] = {}
        self.is_commit: dict[str, bool] = {}
        self.open: dict[str, str] = {}
        self.sent_offsets: dict[str, tuple[Place, int]] = {}
        self.incarnations: dict[str, int] = {}
        self.transaction_count = 0
        # The first one feeds the transformer.
        self.writers = {"writer-0": INPUTS, "writer-1": DATA, "writer-2": (*INPUTS, *DATA)}
        self.finished: set[str] = set()

    def _tick(self) -> float:
        self.now += self.chance.uniform(0.001, 1.0)
        return self.now

    @property
    def events(self) -> list[AnyEvent]:
        return self.history.events

    def run(self) -> "HonestWorld":
        busy: list[Turns] = []
        for name, places in self.writers.items():
            busy.append(self.producer(name, self.chance.sample(ENDINGS, len(ENDINGS)), places))
        busy.append(self.transformer("transformer", self.chance.sample(ENDINGS, len(ENDINGS))))
        idle = [self.reader(f"reader-{index}") for index in range(2)]
        idle += [self.marker_writer(), self.onlooker()]
        for _ in range(TURNS_MAX):
            if not busy:
                break
            actor = self.chance.choice(busy + idle)
            try:
                next(actor)
            except StopIteration:
                busy.remove(actor)
        assert not busy, "the world does not come to an end"
        self.settle()
        return self

    # --- the server

    def decide(self, transaction: str, is_commit: bool) -> None:
        places: list[Place | None] = [place for place, log in self.logs.items() if transaction in log.first_offsets]
        if transaction in self.sent_offsets:
            places.append(None)
        self.markers[transaction] = places
        self.is_commit[transaction] = is_commit
        self.open = {name: one for name, one in self.open.items() if one != transaction}

    def write_marker(self, transaction: str) -> None:
        places = self.markers[transaction]
        if places:
            place = places.pop(self.chance.randrange(len(places)))
            if place is not None:
                self.logs[place].mark(transaction, self.is_commit[transaction])
            else:
                partition, offset = self.sent_offsets.pop(transaction)
                if self.is_commit[transaction]:
                    self.group_offsets[partition] = offset
        if not places:
            del self.markers[transaction]

    def marker_writer(self) -> Turns:
        while True:
            if self.markers:
                self.write_marker(self.chance.choice(sorted(self.markers)))
            yield

    def ended(self, transactional_id: str) -> Turns:
        """Until nothing of the id is left to be written."""
        while any(name.startswith(f"{transactional_id}/") for name in self.markers):
            yield

    # --- producers

    def start(self, transactional_id: str) -> Turns:
        incarnation = self.incarnations.get(transactional_id, 0) + 1
        self.history.note(ProducerAsked(transactional_id=transactional_id, incarnation=incarnation))
        yield
        if transactional_id in self.open:
            self.decide(self.open[transactional_id], is_commit=False)
        yield from self.ended(transactional_id)
        self.incarnations[transactional_id] = incarnation
        self.history.note(ProducerReady(transactional_id=transactional_id, incarnation=incarnation))

    def begin(self, transactional_id: str) -> str:
        self.transaction_count += 1
        incarnation = self.incarnations[transactional_id]
        transaction = f"{transactional_id}/{incarnation}/{self.transaction_count}"
        begun = Begun(
            transaction=transaction, transactional_id=transactional_id, incarnation=incarnation, timeout_s=TIMEOUT_S
        )
        self.history.note(begun)
        self.open[transactional_id] = transaction
        return transaction

    def send(self, transaction: str, number: int, place: Place, source: Source | None = None) -> Turns:
        value = f"{transaction}:{number}"
        self.history.note(Sent(transaction=transaction, place=place, value=value, source=source))
        yield
        offset = self.logs[place].append(transaction, value)
        yield
        told = -1 if self.chance.random() < 0.1 else offset
        self.history.note(Acknowledged(place=place, value=value, offset=told))

    def producer(self, transactional_id: str, endings: Sequence[str], places: Sequence[Place]) -> Turns:
        yield from self.start(transactional_id)
        for ending in endings:
            yield from self.ended(transactional_id)
            transaction = self.begin(transactional_id)
            for number in range(self.chance.randint(2, 5)):
                yield from self.send(transaction, number, self.chance.choice(places))
            yield from self.end(transactional_id, transaction, ending)
        yield from self.ended(transactional_id)
        self.finished.add(transactional_id)

    def end(self, transactional_id: str, transaction: str, ending: str) -> Turns:
        yield
        if ending in ("abandoned", "fenced"):
            yield from self.start(transactional_id)
            if ending == "fenced":
                yield from self.live_on(transaction)
            return
        is_commit = ending not in ("abort", "abort of unknown end")
        self.history.note(EndAsked(transaction=transaction, is_commit=is_commit))
        yield
        if ending not in ("unknown, aborted", "abort of unknown end"):
            self.decide(transaction, is_commit)
        yield
        if ending in ("commit", "abort"):
            outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
            self.history.note(Ended(transaction=transaction, outcome=outcome))
            return
        yield from self.start(transactional_id)
        outcome = Outcome.FENCED if ending == "fenced, committed" else Outcome.UNKNOWN
        self.history.note(Ended(transaction=transaction, outcome=outcome))

    def live_on(self, transaction: str) -> Turns:
        """The old producer does not know that its id is gone: whatever it sends is refused."""
        place = self.chance.choice(DATA)
        self.history.note(Sent(transaction=transaction, place=place, value=f"{transaction}:late"))
        yield
        self.history.note(EndAsked(transaction=transaction, is_commit=True))
        yield
        self.history.note(Ended(transaction=transaction, outcome=Outcome.FENCED))

    def transformer(self, transactional_id: str, endings: Sequence[str]) -> Turns:
        yield from self.start(transactional_id)
        for ending in endings:
            yield from self.ended(transactional_id)
            place = self.chance.choice(INPUTS)
            position = max(self.told_group_offset(place), 0)
            inputs: list[tuple[int, str]] = []
            while not inputs:
                yield
                inputs = self.logs[place].records(Isolation.COMMITTED, position, count_max=2)
                if not inputs and self.finished == self.writers.keys():
                    return
            transaction = self.begin(transactional_id)
            for number, (offset, _) in enumerate(inputs):
                yield from self.send(transaction, number, self.chance.choice(OUTPUTS), Source(place, offset))
            next_offset = inputs[-1][0] + 1
            self.history.note(OffsetSent(transaction=transaction, group=GROUP, place=place, offset=next_offset))
            yield
            self.sent_offsets[transaction] = (place, next_offset)
            yield from self.end(transactional_id, transaction, ending)

    # --- readers

    def told_group_offset(self, place: Place, is_final: bool = False) -> int:
        asked_at = self._tick()
        offset = self.group_offsets[place]
        self.history.note(
            GroupOffsetRead(group=GROUP, place=place, offset=offset, asked_at=asked_at, is_final=is_final)
        )
        return offset

    def onlooker(self) -> Turns:
        """Asks for the group's positions now and then; while one is pending, the answer is to ask again."""
        while True:
            place = self.chance.choice(INPUTS)
            if all(pending != place for pending, _ in self.sent_offsets.values()):
                self.told_group_offset(place)
            for _ in range(20):
                yield

    def reader(self, name: str) -> Turns:
        life = 0
        positions = dict.fromkeys(self.logs, 0)
        while True:
            life += 1
            reader = f"{name}/{life}"
            if self.chance.random() < 0.3:
                positions = dict.fromkeys(self.logs, 0)
            for place, position in positions.items():
                self.history.note(ReaderStarted(reader=reader, place=place, position=position))
            for _ in range(self.chance.randint(10, 80)):
                place = self.chance.choice(list(self.logs))
                self.poll(reader, place, positions)
                yield

    def poll(self, reader: str, place: Place, positions: dict[Place, int], count_max: int = 4) -> None:
        log = self.logs[place]
        records = log.records(Isolation.COMMITTED, positions[place], count_max)
        for offset, value in records:
            self.history.note(Read(reader=reader, place=place, offset=offset, value=value))
            positions[place] = offset + 1
        if len(records) < count_max:
            positions[place] = max(positions[place], log.last_stable_offset)
            self.history.note(Passed(reader=reader, place=place, position=positions[place]))

    # --- the end

    def settle(self) -> None:
        for transaction in sorted(self.open.values()):
            self.decide(transaction, is_commit=False)
        while self.markers:
            self.write_marker(min(self.markers))
        positions = dict.fromkeys(self.logs, 0)
        for place, log in self.logs.items():
            self.history.note(ReaderStarted(reader="last", place=place, position=0))
            self.poll("last", place, positions, count_max=TURNS_MAX)
            for isolation in Isolation:
                end = log.last_stable_offset if isolation is Isolation.COMMITTED else len(log.entries)
                records = log.records(isolation)
                self.history.note(FinalLog(place=place, isolation=isolation, records=records, end_offset=end))
        for place in INPUTS:
            self.told_group_offset(place, is_final=True)

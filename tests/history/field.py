"""A good history as ground to plant anomalies in: picks what fits, and changes what readers and producers were told."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import inf
from random import Random
from typing import TypeVar

import msgspec

from tests.history.honest_world import GROUP, TIMEOUT_S, HonestWorld
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
    Place,
    ProducerReady,
    Read,
    ReaderStarted,
    Sent,
    Source,
)
from tests.support.history_view import HistoryView, Reading, Transaction, reached

# Shorter than any step of the honest world's clock.
MOMENT_S = 0.0001

Thing = TypeVar("Thing")


@cache
def good_history(seed: int) -> bytes:
    """As bytes, because every plant gets a history of its own to spoil."""
    return msgspec.json.encode(HonestWorld(seed).run().events)


class Field:
    """See the module's words. `view` is of the history before anything was planted."""

    def __init__(self, seed: int) -> None:
        self.events = msgspec.json.decode(good_history(seed), type=list[AnyEvent])
        self.chance = Random(seed)
        self.view = HistoryView(self.events)

    # --- picking

    def pick(self, things: Iterable[Thing]) -> Thing:
        """One of them; a history in which nothing fits proves nothing, so that is an error."""
        return self.chance.choice(list(things))

    def transactions(
        self, fits: Callable[[Transaction], bool] = lambda one: True, *, at_least: int = 1
    ) -> list[Transaction]:
        return [one for one in self.view.transactions.values() if len(one.sent) >= at_least and fits(one)]

    def confirmed(self, at_least: int = 1) -> list[Transaction]:
        """Committed by producers that only write, so that no group is touched."""
        return self.transactions(lambda one: one.must_commit and not one.offsets, at_least=at_least)

    def aborted(self) -> list[Transaction]:
        return self.transactions(lambda one: one.outcome is Outcome.ABORTED and not one.offsets)

    def uncertain(self, is_there: bool) -> list[Transaction]:
        """Of unknown outcome, and in truth committed or not."""
        return self.transactions(
            lambda one: (
                one.outcome is Outcome.UNKNOWN
                and one.may_commit
                and not one.offsets
                and (one.sent[0].value in self.view.committed_values) is is_there
            ),
            at_least=2,
        )

    def fenced(self) -> list[Transaction]:
        """Their producers went on after they were fenced."""
        return self.transactions(lambda one: one.outcome is Outcome.FENCED and not one.may_commit and not one.offsets)

    def transforming(self, fits: Callable[[Transaction], bool], at_least: int = 1) -> list[Transaction]:
        return self.transactions(lambda one: bool(one.offsets) and fits(one), at_least=at_least)

    def stored(self, transaction: Transaction) -> list[Sent]:
        return [sent for sent in transaction.sent if sent.value in self.view.offsets_in_log]

    def offset_of(self, value: str) -> int:
        ((_, offset),) = self.view.offsets_in_log[value]
        return offset

    def readings(self, fits: Callable[[Reading], bool]) -> list[Reading]:
        return [reading for reading in self.view.readings.values() if fits(reading)]

    def marker_offsets(self, place: Place, above: int = -1) -> list[int]:
        """Offsets of the log that hold no record."""
        log = self.final(Isolation.UNCOMMITTED, place)
        used = {offset for offset, _ in log.records}
        return [offset for offset in range(above + 1, log.end_offset) if offset not in used]

    def final(self, isolation: Isolation, place: Place) -> FinalLog:
        return next(
            event
            for event in self.events
            if isinstance(event, FinalLog) and (event.isolation, event.place) == (isolation, place)
        )

    def final_group_offset(self, place: Place) -> GroupOffsetRead:
        return next(
            event
            for event in self.events
            if isinstance(event, GroupOffsetRead) and event.is_final and event.place == place
        )

    # --- changing what is there

    def add(self, at: float, event: AnyEvent) -> None:
        event.at = at
        self.events.append(event)

    def drop(self, fits: Callable[[AnyEvent], bool]) -> None:
        self.events[:] = [event for event in self.events if not fits(event)]

    def store(self, place: Place, offset: int, value: str) -> None:
        """Put a record into the log, where only readers of uncommitted records find it."""
        self._insert(self.final(Isolation.UNCOMMITTED, place), offset, value)

    def unstore(self, value: str) -> None:
        for event in self.events:
            if isinstance(event, FinalLog):
                event.records = [(offset, one) for offset, one in event.records if one != value]

    def show(self, place: Place, offset: int, value: str) -> None:
        """Give a record to everybody who reads committed records there."""
        self._insert(self.final(Isolation.COMMITTED, place), offset, value)
        for reading in self.view.readings.values():
            self.show_to(reading, place, offset, value)

    def show_to(self, reading: Reading, place: Place, offset: int, value: str) -> None:
        if reading.place != place or not (reading.start or 0) <= offset < reading.position:
            return
        passing = next(step for step in reading.steps if reached(step) > offset)
        read = Read(at=passing.at, reader=reading.reader, place=place, offset=offset, value=value)
        self.events.insert(self.events.index(passing), read)

    def hide(self, values: Iterable[str], *, also_from_readers: bool = True) -> None:
        """Nobody who reads committed records gets them; without the readers, nobody does in the end."""
        hidden = set(values)
        for event in self.events:
            if isinstance(event, FinalLog) and event.isolation is Isolation.COMMITTED:
                event.records = [(offset, value) for offset, value in event.records if value not in hidden]
        self.drop(
            lambda event: (
                isinstance(event, Read) and event.value in hidden and (also_from_readers or event.reader == "last")
            )
        )

    def swap(self, one: str, other: str) -> None:
        """Each of two records stands where the other stood, and all were told so from the beginning."""
        names = {one: other, other: one}
        for event in self.events:
            if isinstance(event, FinalLog):
                event.records = [(offset, names.get(value, value)) for offset, value in event.records]
            elif isinstance(event, Read):
                event.value = names.get(event.value, event.value)
        offsets = {one: self.offset_of(other), other: self.offset_of(one)}
        for event in self.events:
            if isinstance(event, Acknowledged) and event.value in offsets and event.offset >= 0:
                event.offset = offsets[event.value]

    def _insert(self, log: FinalLog, offset: int, value: str) -> None:
        log.records = sorted([*log.records, (offset, value)])
        log.end_offset = max(log.end_offset, offset + 1)

    # --- adding what was not there

    def early_reader(self, place: Place, position: int, at: float) -> str:
        self.add(at, ReaderStarted(reader="early", place=place, position=position))
        return "early"

    def told_group_offset(self, place: Place, offset: int, at: float) -> None:
        self.add(at, GroupOffsetRead(group=GROUP, place=place, offset=offset, asked_at=at))

    def extra_transaction(
        self,
        name: str,
        records: Sequence[tuple[Place, Source | None]],
        *,
        outcome: Outcome,
        is_there: bool,
        offset: tuple[Place, int] | None = None,
    ) -> list[str]:
        """One more, after all others and before the final reads; what it stored stands at the ends of the logs."""
        at = min(event.at for event in self.events if isinstance(event, FinalLog)) - 1.0
        at = min(at, min(event.at for event in self.events if isinstance(event, Read) and event.reader == "last"))
        at -= MOMENT_S
        self.add(at, ProducerReady(transactional_id=name, incarnation=1))
        self.add(at, Begun(transaction=name, transactional_id=name, incarnation=1, timeout_s=TIMEOUT_S))
        values = []
        for number, (place, source) in enumerate(records):
            value = f"{name}:{number}"
            values.append(value)
            self.add(at, Sent(transaction=name, place=place, value=value, source=source))
            end = self.final(Isolation.UNCOMMITTED, place).end_offset
            self.store(place, end, value)
            committed = self.final(Isolation.COMMITTED, place)
            if is_there:
                self._insert(committed, end, value)
            committed.end_offset = end + 1
        if offset is not None:
            self.add(at, OffsetSent(transaction=name, group=GROUP, place=offset[0], offset=offset[1]))
        self.add(at, EndAsked(transaction=name, is_commit=True))
        self.add(at, Ended(transaction=name, outcome=outcome))
        return values


def ended_at(transaction: Transaction) -> float:
    assert transaction.ended_at < inf
    return transaction.ended_at

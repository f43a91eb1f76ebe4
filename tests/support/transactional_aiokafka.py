"""A process that writes, and one that reads, writes and commits its position, in transactions over aiokafka.

Usage: python -m tests.support.transactional_aiokafka BOOTSTRAP HISTORY NAME SEED PLACES [INPUTS]
Places are written `topic:partition`, with commas between; with inputs it is a program that transforms. It works until
its standard input ends, and says at the end what it has counted.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.support.history import (
    Acknowledged,
    Begun,
    EndAsked,
    Ended,
    History,
    Isolation,
    OffsetSent,
    Outcome,
    Place,
    ProducerAsked,
    ProducerReady,
    Sent,
    Source,
    record_of,
)
from tests.support.transactional_errors import NO_ANSWER, told
from tests.support.transactional_workers import asking_consumer, note_positions

PATIENCE_S = 60.0
TRANSACTION_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
RETRY_S = 0.05
TRANSACTION_RECORDS_MAX = 6
TRANSFORMED_MAX = 10
POLL_MS = 100
HURRY_S_MAX = 0.02


class Incarnation:
    """One producer of a transactional id."""

    def __init__(self, program: "Program", number: int) -> None:
        self.program = program
        self.number = number
        self.transaction = ""
        self.is_fenced = self.is_dead = self.is_replaced = False
        self._count = self._records = 0
        self.producer = AIOKafkaProducer(
            bootstrap_servers=program.bootstrap,
            transactional_id=program.name,
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT_S * 1000),
            retry_backoff_ms=50,
            request_timeout_ms=5_000,
        )

    def note(self, event: Any) -> None:
        self.program.history.note(event)

    async def start(self) -> "Incarnation":
        self.note(ProducerAsked(transactional_id=self.program.name, incarnation=self.number))
        await self.program.repeated(self.producer.start)
        self.note(ProducerReady(transactional_id=self.program.name, incarnation=self.number))
        return self

    async def begin(self) -> None:
        self._count += 1
        self._records = 0
        self.transaction = f"{self.program.name}/{self.number}/{self._count}"
        self.note(
            Begun(
                transaction=self.transaction,
                transactional_id=self.program.name,
                incarnation=self.number,
                timeout_s=TRANSACTION_TIMEOUT_S,
            )
        )
        await self.producer.begin_transaction()

    async def send(self, records: Sequence[tuple[Place, Source | None]]) -> None:
        """Until all are acknowledged; the first that is not raises."""
        waiting: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                for place, source in records:
                    waiting.append(await self._sent(place, source))
                await asyncio.gather(*waiting)
        except ProducerFenced:
            self.is_fenced = True
            raise
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _sent(self, place: Place, source: Source | None) -> "asyncio.Task[None]":
        """One record, handed over. This client waits for metadata before, each call by itself: the order of records is
        that of the calls only if each is awaited before the next.
        """
        value = f"{self.transaction}:{self._records}"
        self._records += 1
        self.note(Sent(transaction=self.transaction, place=place, value=value, source=source))
        delivery = await self.producer.send(place.topic, value=record_of(value), partition=place.partition)
        return asyncio.ensure_future(self._acknowledged(place, value, delivery))

    async def _acknowledged(self, place: Place, value: str, delivery: "asyncio.Future[Any]") -> None:
        self.note(Acknowledged(place=place, value=value, offset=(await delivery).offset))

    async def send_positions(self, sources: Sequence[Source]) -> None:
        # The last of each place counts.
        positions = {source.place: source.offset + 1 for source in sources}
        for place, offset in positions.items():
            self.note(OffsetSent(transaction=self.transaction, group=self.program.name, place=place, offset=offset))
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, "") for place, offset in positions.items()}
        await asyncio.wait_for(self.producer.send_offsets_to_transaction(offsets, self.program.name), PATIENCE_S)

    async def end(self, is_commit: bool, patience_s: float = PATIENCE_S) -> Outcome:
        self.note(EndAsked(transaction=self.transaction, is_commit=is_commit))
        call = self.producer.commit_transaction if is_commit else self.producer.abort_transaction
        try:
            await asyncio.wait_for(call(), patience_s)
            outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        except ProducerFenced:
            outcome = Outcome.FENCED
        except TimeoutError:
            outcome = Outcome.UNKNOWN
            if patience_s >= PATIENCE_S:
                self.program.count(told("aiokafka's end", NO_ANSWER, is_replaced=self.is_replaced))
        except KafkaError as error:
            outcome = Outcome.UNKNOWN
            self.told("end", error)
        except AssertionError:
            # After a fatal error, told before, this client does not ask the server any more.
            if not (self.is_fenced or self.is_dead):
                raise
            outcome = Outcome.FENCED if self.is_fenced else Outcome.UNKNOWN
        if outcome is Outcome.FENCED:
            self.program.count(told("end", str(outcome), is_replaced=self.is_replaced))
        self.note(Ended(transaction=self.transaction, outcome=outcome))
        self.program.count(str(outcome))
        return outcome

    def not_sent(self, error: Exception) -> None:
        self.is_dead = True
        self.told("send", error)

    def told(self, where: str, error: Exception) -> None:
        """Count an error by what it comes from: that of a sender which ended says nothing by itself."""
        while isinstance(error.__cause__, KafkaError):
            error = error.__cause__
        self.program.count(told(f"aiokafka's {where}", type(error).__name__, is_replaced=self.is_replaced))

    async def close(self) -> None:
        # It waits for what the server never answers, if the server does not know this producer any more.
        with suppress(KafkaError, TimeoutError, AssertionError):
            await asyncio.wait_for(self.producer.stop(), STOP_TIMEOUT_S)


class Program:
    """Writes to the places; with inputs, what it writes is made from them."""

    def __init__(
        self, bootstrap: str, history: History, name: str, seed: int, places: Sequence[Place], inputs: Sequence[Place]
    ) -> None:
        self.bootstrap = bootstrap
        self.history = history
        self.name = name
        self.chance = Random(seed)
        self.places = places
        self.inputs = inputs
        self.wish = asyncio.Event()
        self.counts: dict[str, int] = {}
        self.incarnations = 0
        self.consumer: Any = None
        self.asker = asking_consumer(bootstrap, name)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def repeated(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, from a server that may be away for a while."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await asyncio.wait_for(ask(), PATIENCE_S)
            except KafkaError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        incarnation = await self.next()
        if self.inputs:
            self.consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=self.name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=str(Isolation.COMMITTED),
                retry_backoff_ms=50,
                request_timeout_ms=5_000,
            )
            self.consumer.assign([TopicPartition(*place) for place in self.inputs])
            await self.repeated(self.consumer.start)
            await self.go_back()
        while not self.wish.is_set():
            records = await self.next_records()
            if records:
                incarnation = await self.transact(incarnation, records)
        await incarnation.close()
        self.asker.close()
        if self.consumer is not None:
            await self.consumer.stop()

    async def next(self) -> Incarnation:
        self.incarnations += 1
        return await Incarnation(self, self.incarnations).start()

    async def next_records(self) -> list[tuple[Place, Source | None]]:
        if self.consumer is None:
            count = self.chance.randint(1, TRANSACTION_RECORDS_MAX)
            return [(self.chance.choice(self.places), None) for _ in range(count)]
        batches = await self.consumer.getmany(timeout_ms=POLL_MS, max_records=TRANSFORMED_MAX)
        records: list[tuple[Place, Source | None]] = []
        for partition, messages in batches.items():
            place = Place(partition.topic, partition.partition)
            for message in messages:
                records.append((self.chance.choice(self.places), Source(place, message.offset)))
        return records

    async def transact(self, incarnation: Incarnation, records: list[tuple[Place, Source | None]]) -> Incarnation:
        await incarnation.begin()
        outcome: Outcome | None
        try:
            await incarnation.send(records)
            if self.consumer is not None:
                await incarnation.send_positions([source for _, source in records if source is not None])
        except (KafkaError, TimeoutError) as error:
            incarnation.not_sent(error)
            outcome = await incarnation.end(is_commit=False)
            successor = incarnation
        else:
            outcome, successor = await self.end(incarnation)
        if outcome in (Outcome.UNKNOWN, Outcome.FENCED) and successor is incarnation:
            incarnation.is_replaced = True
            successor = await self.next()
            await incarnation.close()
        if self.consumer is not None and outcome is not Outcome.COMMITTED:
            await self.go_back()
        return successor

    async def end(self, incarnation: Incarnation) -> tuple[Outcome | None, Incarnation]:
        way = self.chance.random()
        if way < 0.12:
            incarnation.is_replaced = True
        if way < 0.06:
            successor = await self.next()
            try:
                await incarnation.send([(self.places[0], None)])
            except (KafkaError, TimeoutError) as error:
                incarnation.not_sent(error)
            outcome = await incarnation.end(is_commit=True)
            self.count("zombies fenced" if outcome is Outcome.FENCED else f"zombies {outcome}")
            await incarnation.close()
            return outcome, successor
        if way < 0.12:
            self.count("abandoned")
            successor = await self.next()
            await incarnation.close()
            return None, successor
        patience_s = self.chance.uniform(0.001, HURRY_S_MAX) if way < 0.24 else PATIENCE_S
        return await incarnation.end(self.chance.random() < 0.75, patience_s), incarnation

    async def go_back(self) -> None:
        """What was read and not committed is read again.

        librdkafka asks, because aiokafka 0.14 begins anew, or where it was before its last commit, while a server
        comes back:

        - Its newest OffsetFetch is 3. From 2 on, a coordinator that loads the group, or is none, says so in the error
          of the whole answer, which names no topic then; so does Kafka (GroupCoordinatorService.fetchOffsets, KafkaApis
          and OffsetFetchResponse, which repeats the error for each partition only before 2).
        - GroupCoordinator._do_fetch_commit_offsets reads the errors of partitions and no other. No partition, no error:
          the positions are {}, as of a group that has none, and its auto_offset_reset decides.
        - require_stable (KIP-447) came with 7. Without it nobody is told UNSTABLE_OFFSET_COMMIT: while a transaction is
          about to be committed, the answer is the position before it.
        """
        note = partial(note_positions, self.history, self.asker, self.name, self.inputs)
        for place, offset in (await asyncio.to_thread(note)).items():
            self.consumer.seek(TopicPartition(*place), max(offset, 0))


def places_in(text: str) -> list[Place]:
    return [Place(topic, int(partition)) for topic, partition in (one.rsplit(":", 1) for one in text.split(","))]


async def main() -> None:
    bootstrap, path, name, seed, places, *inputs = sys.argv[1:]
    with History(Path(path)) as history:
        program = Program(
            bootstrap, history, name, int(seed), places_in(places), places_in(inputs[0]) if inputs else []
        )
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, program.wish.set)
        await program.run()
    for what, count in sorted(program.counts.items()):
        print(f"{count} {what}")


if __name__ == "__main__":
    asyncio.run(main())

"""A quiet node with topics `a` and `b` and an event store, whose journal is listened to in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kwire.broker.topics.topics import EVENTS_TOPIC, Topic
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.subscriptions import FROM_OLDEST, Start, SubscribeOptions, Subscription
from kwire.streams.subscriptions.event_reader import OpenReader
from tests.support.event_store import draft
from tests.support.subscribing import Listening, RecordingSink


class Everything(Listening):
    journal: Topic

    @property
    def store(self) -> EventStore:
        return self.node.event_store

    async def prepare(self, *names: str) -> None:
        for name in names or ("a", "b"):
            await self.node.create_event_topic(name)
        self.journal = await self.node.topics.events_topic()

    async def publish(self, *topics: str) -> None:
        """One commit, with an event of each."""
        await self.store.publish([draft(topic, number) for number, topic in enumerate(topics)])

    async def listen(
        self,
        start: Start = FROM_OLDEST,
        sink: RecordingSink | None = None,
        open_reader: OpenReader | None = None,
        **options: object,
    ) -> tuple[Subscription, RecordingSink]:
        sink = sink or RecordingSink()
        subscription = await self.subscriptions.subscribe(
            EVENTS_TOPIC,
            self.journal.stream(),
            start,
            sink,
            SubscribeOptions(**options),  # type: ignore[arg-type]
            open_reader or self.store.global_reader,
        )
        subscription.begin()
        return subscription, sink

    def settle(self) -> None:
        """Until nothing is left to do, the disk included."""
        self.loop.settle()
        while self.disk.waiting:
            self.disk.finish()
            self.loop.settle()


@asynccontextmanager
async def everything(directory: Path, **settings: object) -> AsyncIterator[Everything]:
    made = Everything(directory, **settings)
    try:
        await made.prepare()
        yield made
    finally:
        made.close()

"""Lanes: the lanes of all webhooks, and the dispatcher of each topic that has one."""

import asyncio
from collections.abc import Callable, Iterable

from kwire.streams.topic_directory import TopicFinder
from kwire.streams.webhooks.consumer import Consumer
from kwire.streams.webhooks.delivery.delivery import CallLater, DeliveryWorkers, Lane
from kwire.streams.webhooks.delivery.dispatcher import Dispatcher
from kwire.streams.webhooks.state_log import StateLog


class Lanes:
    """Use it in the event loop's thread. A dispatcher exists while its topic has a lane."""

    def __init__(
        self,
        topics: TopicFinder,
        state: StateLog,
        workers: DeliveryWorkers,
        call_soon: Callable[..., object],
        call_later: CallLater,
        interval_ms: int,
    ) -> None:
        self.dispatchers: dict[str, Dispatcher] = {}
        self._topics = topics
        self._state = state
        self._workers = workers
        self._call_soon = call_soon
        self._call_later = call_later
        self._interval_ms = interval_ms

    def close(self) -> None:
        for dispatcher in self.dispatchers.values():
            dispatcher.close()

    def add(self, consumer: Consumer, name: str) -> None:
        dispatcher = self.dispatchers.get(name)
        if dispatcher is None:
            dispatcher = self.dispatchers[name] = Dispatcher(
                name,
                self._topics,
                self._state,
                self._workers.wake,
                self._call_soon,
                self._call_later,
                self._interval_ms,
            )
            dispatcher.start()
        dispatcher.add(Lane(consumer, name))

    def remove(self, consumer: Consumer, name: str) -> None:
        dispatcher = self.dispatchers.get(name)
        if dispatcher is not None:
            dispatcher.remove(consumer.webhook_id)
            if not dispatcher.lanes:
                dispatcher.close()
                del self.dispatchers[name]

    def wake(self, consumer: Consumer) -> None:
        for name in consumer.cursors:
            lane = self.dispatchers[name].lanes.get(consumer.webhook_id)
            if lane is not None:
                self._workers.wake(lane)

    async def found(self, names: Iterable[str]) -> None:
        """Wait until the dispatchers of these topics have looked for them, so that answers show the progress."""
        await asyncio.gather(*(self.dispatchers[name].found() for name in names if name in self.dispatchers))

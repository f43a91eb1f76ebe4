"""Cluster: connections to the brokers of a Kafka cluster, and metadata that follows the leaders of partitions."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.backoff import Backoff, Random
from kwire.kafka_client.counters import ConnectionCounters
from kwire.kafka_client.errors import NotSent, Unreachable, refusal
from kwire.kafka_client.link import Link, Purpose
from kwire.kafka_client.metadata import NO_NODE, Metadata
from kwire.kafka_client.settings import Address, ClientSettings
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.wire.schema import Api

log = logging.getLogger("kwire.kafka_client")

# Pause between two Metadata requests, so that errors of many partitions cause few requests. Topics that are asked for
# the first time do not wait.
REFRESH_PAUSE_SECONDS: Final = 0.1
# Topics of one Metadata request. Further topics have to wait for the next one.
TOPICS_PER_REQUEST: Final = 1000

MetadataListener = Callable[[frozenset[str]], None]


class Cluster:
    """A client of a cluster. Use it in the event loop's thread, and `close` it."""

    def __init__(self, settings: ClientSettings, random: Random = random.random) -> None:
        self.settings = settings
        self.metadata = Metadata()
        self.counters = ConnectionCounters()
        self._random = random
        self._links: dict[tuple[Address, Purpose], Link] = {}
        self._wanted: dict[str, None] = {}
        self._round: asyncio.Task[None] | None = None
        self._next_round: asyncio.Future[None] | None = None
        self._refreshed_at = -REFRESH_PAUSE_SECONDS
        self._listeners: list[MetadataListener] = []
        self._is_closed = False

    def close(self) -> None:
        """Close all connections. Requests without a response fail with Unreachable."""
        self._is_closed = True
        if self._round is not None:
            self._round.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()

    def backoff(self) -> Backoff:
        return Backoff(self._random)

    # --- metadata

    def on_metadata(self, listener: MetadataListener) -> None:
        """Call `listener` with the names of the topics after each response to a Metadata request."""
        self._listeners.append(listener)

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Ask for the brokers and the leaders of topics, together with what others ask for at the same time.

        Raises KafkaError if no broker answers.
        """
        self._wanted.update(dict.fromkeys(topics))
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().create_future()
            if self._round is None:
                self._round = asyncio.create_task(self._refresh_rounds())
        await asyncio.shield(self._next_round)

    async def _refresh_rounds(self) -> None:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] | None = None
        try:
            while self._next_round is not None:
                pause = self._refreshed_at + REFRESH_PAUSE_SECONDS - loop.time()
                if pause > 0 and self._wanted.keys() <= self.metadata.topics.keys():
                    await asyncio.sleep(pause)
                outcome, self._next_round = self._next_round, None
                wanted, self._wanted = list(self._wanted), {}
                try:
                    await self._refresh_now(wanted)
                except KafkaError as error:
                    outcome.set_exception(error)
                    outcome.exception()  # a caller may have given up
                else:
                    outcome.set_result(None)
        finally:
            self._round = None
            for waiting in (outcome, self._next_round):
                if waiting is not None and not waiting.done():
                    waiting.cancel()

    async def _refresh_now(self, names: list[str]) -> None:
        for first in range(0, max(1, len(names)), TOPICS_PER_REQUEST):
            chunk = names[first : first + TOPICS_PER_REQUEST]
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in chunk], allow_auto_topic_creation=False
            )
            try:
                response: MetadataResponse = await self.request_any(METADATA, request)
            finally:
                self._refreshed_at = asyncio.get_running_loop().time()
            if response.error_code:
                raise refusal("Metadata", response.error_code)
            self.metadata.update(response)
            self._close_links_of_former_addresses()
            for listener in self._listeners:
                listener(frozenset(chunk))

    # --- requests

    def link(self, node: int, purpose: Purpose) -> Link:
        """Return the link to a broker. Raises NotSent if the cluster has no such broker."""
        address = self.metadata.brokers.get(node)
        if address is None:
            raise NotSent(f"the address of broker {node} is not known" if node != NO_NODE else "there is no leader")
        return self._link(address, purpose)

    async def request_any(self, api: Api, message: Any) -> Any:
        """Send a query to any broker, and return the response. Raises the error of the last one if none answers."""
        last: KafkaError | None = None
        for link in self.query_links():
            try:
                return await link.request(api, message)
            except Unreachable as error:
                last = error
        raise last or NotSent("no bootstrap server is named")

    async def request_controller(self, api: Api, message: Any, *, wait_seconds: float = 0) -> Any:
        """Send a change to the controller, or in KRaft clusters to a broker that forwards it. It is sent once."""
        return await (await self.controller_link(Purpose.CHANGE)).request(api, message, wait_seconds=wait_seconds)

    async def controller_link(self, purpose: Purpose) -> Link:
        """Return the link to the controller, or in KRaft clusters to a broker that forwards its requests."""
        if not self.metadata.brokers:
            await self.refresh()
        node = self.metadata.controller
        if node not in self.metadata.brokers:
            node = next(iter(self.metadata.brokers), NO_NODE)
        return self.link(node, purpose)

    async def request_leader(
        self, topic: str, partition: int, api: Api, message: Any, purpose: Purpose, *, wait_seconds: float = 0
    ) -> Any:
        """Send a request to the leader of a partition. Raises KafkaError with LEADER_NOT_AVAILABLE if there is none."""
        leader = self.metadata.leader(topic, partition)
        if leader.node not in self.metadata.brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic}-{partition} has no leader")
        return await self.link(leader.node, purpose).request(api, message, wait_seconds=wait_seconds)

    def _link(self, address: Address, purpose: Purpose) -> Link:
        link = self._links.get((address, purpose))
        if link is None:
            if self._is_closed:
                raise NotSent("the client is closed")
            link = self._links[address, purpose] = Link(address, self.settings, self.backoff(), self.counters)
        return link

    def query_links(self, purpose: Purpose = Purpose.CONTROL) -> Iterator[Link]:
        """Yield the links for queries to any broker: open ones first, those that are down last."""
        addresses = dict.fromkeys((*self.metadata.brokers.values(), *self.settings.bootstrap))
        links = [self._link(address, purpose) for address in addresses]
        return iter(sorted(links, key=lambda link: (link.current is None, link.pause_seconds)))

    def _close_links_of_former_addresses(self) -> None:
        known = {*self.metadata.brokers.values(), *self.settings.bootstrap}
        for key in [key for key in self._links if key[0] not in known]:
            log.info("broker at %s is no longer part of the cluster", key[0])
            self._links.pop(key).close()

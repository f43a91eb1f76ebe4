"""Sends requests of users to the cluster: to any broker, to the controller, or to several brokers at a time.

Requests are sent once, on connections of their own. They have the version of the client's request, or a lower one that
the broker has, if nothing of the request is lost by that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple, TypeVar

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import NotSent, NotSupported, Unreachable, error_code, refusal
from kwire.kafka_client.link import Link, Purpose
from kwire.wire.codec import decoder, encoder
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.wire.schema import Api

M = TypeVar("M")
P = TypeVar("P")

GROUP: Final = 0
TRANSACTION: Final = 1
# Groups or transactional ids of one request for their coordinators.
KEYS_PER_REQUEST: Final = 500
# The first version of Metadata that finds topics by their ids (Apache Kafka 3.1).
METADATA_BY_ID: Final = 12
# The longest time for which a request may let the cluster wait. The client waits no longer than that, either.
WAIT_MS_MAX: Final = 30_000


class FoundTopic(NamedTuple):
    """A topic of the cluster, and the brokers that lead its partitions."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]


class Upstream:
    """Use it in the event loop's thread. All methods raise KafkaError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask_any(self, api: Api, version: int, message: Any) -> Any:
        """Send a query to any broker."""
        last: KafkaError | None = None
        for link in self._cluster.query_links(Purpose.ADMIN):
            try:
                return await self._send(link, api, version, message)
            except Unreachable as error:
                last = error
        raise last or NotSent("the cluster cannot be reached")

    async def ask_controller(self, api: Api, version: int, message: Any, *, wait_ms: int = 0) -> Any:
        """Send a change to the controller, or to a broker that forwards it."""
        link = await self._cluster.controller_link(Purpose.ADMIN)
        return await self._send(link, api, version, message, wait_ms=wait_ms)

    async def ask_broker(self, node: int, api: Api, version: int, message: Any, *, wait_ms: int = 0) -> Any:
        """Send a request to one broker."""
        if node not in self._cluster.metadata.brokers:
            await self._cluster.refresh()
        return await self._send(self._cluster.link(node, Purpose.ADMIN), api, version, message, wait_ms=wait_ms)

    async def ask_all(self, api: Api, version: int, message: Any) -> list[Any]:
        """Send a query to every broker, and return their responses. Raises KafkaError if one of them fails."""
        await self._cluster.refresh()
        brokers = list(self._cluster.metadata.brokers)
        return await asyncio.gather(*(self.ask_broker(node, api, version, message) for node in brokers))

    async def ask_each(
        self, parts: Mapping[int, P], ask: Callable[[int, P], Awaitable[Any]]
    ) -> list[tuple[P, Any | KafkaError]]:
        """Send each broker its part of a request, and return the parts with their responses or errors.

        Raises NotSupported if a broker does not have the version.
        """
        outcomes = await asyncio.gather(*(ask(node, part) for node, part in parts.items()), return_exceptions=True)
        for one in outcomes:
            if isinstance(one, BaseException) and (not isinstance(one, KafkaError) or isinstance(one, NotSupported)):
                raise one
        return list(zip(parts.values(), outcomes, strict=True))

    async def _send(self, link: Link, api: Api, version: int, message: Any, *, wait_ms: int = 0) -> Any:
        connection = await link.connection()
        used = connection.versions.best(api, version)
        if used != version and not _fits(message, used):
            raise NotSupported(
                f"the cluster has no version {version} of {api.name}, and version {used} cannot express this request"
            )
        return await link.request(api, message, version_max=used, wait_seconds=wait_ms / 1000)

    # --- where things are

    async def coordinators(self, kind: int, keys: Iterable[str]) -> dict[str, int | KafkaError]:
        """Return the brokers that coordinate groups or transactional ids."""
        found: dict[str, int | KafkaError] = {}
        asked = list(dict.fromkeys(keys))
        for at in range(0, len(asked), KEYS_PER_REQUEST):
            found |= await self._coordinators(kind, asked[at : at + KEYS_PER_REQUEST])
        return found

    async def _coordinators(self, kind: int, keys: list[str]) -> dict[str, int | KafkaError]:
        # The versions before 4 have only `key`. Then the response has one coordinator.
        request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=keys)
        response: FindCoordinatorResponse = await self._cluster.request_any(FIND_COORDINATOR, request)
        if response.coordinators:
            return {one.key: _coordinator(one.key, one) for one in response.coordinators}
        found = {keys[0]: _coordinator(keys[0], response)}
        for other in keys[1:]:
            found |= await self._coordinators(kind, [other])
        return found

    async def ask_coordinators(
        self, kind: int, keys: Iterable[str], ask: Callable[[int, list[str]], Awaitable[Any]]
    ) -> tuple[list[Any], dict[str, KafkaError]]:
        """Send each coordinator the part of a request that is about its keys. Return responses, and errors by key."""
        nodes: dict[int, list[str]] = {}
        errors: dict[str, KafkaError] = {}
        for key, place in (await self.coordinators(kind, keys)).items():
            if isinstance(place, KafkaError):
                errors[key] = place
            else:
                nodes.setdefault(place, []).append(key)
        responses = []
        for part, outcome in await self.ask_each(nodes, ask):
            if isinstance(outcome, KafkaError):
                errors |= dict.fromkeys(part, outcome)
            else:
                responses.append(outcome)
        return responses, errors

    async def ask_coordinator(self, kind: int, key: str, api: Api, version: int, message: Any) -> Any | KafkaError:
        """Send a request about one group or transactional id to its coordinator. Return its response, or an error."""

        async def ask(node: int, part: list[str]) -> Any:
            return await self.ask_broker(node, api, version, message)

        responses, errors = await self.ask_coordinators(kind, [key], ask)
        return errors[key] if errors else responses[0]

    async def topics(self, names: Iterable[str] = (), ids: Iterable[bytes] = ()) -> list[FoundTopic]:
        """Return the topics of these names and ids that exist, without creating any."""
        by_name = [MetadataRequestTopic(name=one) for one in dict.fromkeys(names)]
        by_id = [MetadataRequestTopic(topic_id=one, name=None) for one in dict.fromkeys(ids)]
        # Apache Kafka ignores the names of a request that has an id.
        found = await self._topics(METADATA.last_version, by_name) if by_name else []
        found += await self._topics(METADATA_BY_ID, by_id) if by_id else []
        return found

    async def _topics(self, version: int, asked: list[MetadataRequestTopic]) -> list[FoundTopic]:
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response: MetadataResponse = await self.ask_any(METADATA, version, request)
        return [
            FoundTopic(one.name, bytes(one.topic_id), {part.partition_index: part.leader_id for part in one.partitions})
            for one in response.topics
            if one.name is not None and not one.error_code
        ]


def _coordinator(key: str, found: Any) -> int | KafkaError:
    if found.error_code:
        return refusal(f"the coordinator of {key!r}", found.error_code, found.error_message or None)
    node: int = found.node_id
    return node


def _fits(message: Any, version: int) -> bool:
    """Return whether nothing of a request is lost if it is sent in a lower version."""
    kind = type(message)
    return bool(decoder(kind, version)(b"".join(encoder(kind, version)(message))) == message)


def with_fields(message: M, **values: Any) -> M:
    """Return a copy of a message or of one of its structs with other values of some fields."""
    copied = copy(message)
    for name, value in values.items():
        setattr(copied, name, value)
    return copied


def code_of(error: KafkaError) -> ErrorCode:
    return error_code(error.code)

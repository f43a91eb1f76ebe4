"""Coordinators: finds the broker that coordinates a group, and repeats requests while the coordinator moves."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import Unreachable, error_code, refusal
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse
from kwire.wire.schema import Api

log = logging.getLogger("kwire.kafka_client")

# How long a request is repeated while the coordinator moves, loads its groups or cannot be reached.
COORDINATOR_SECONDS: Final = 30.0
# Coordinators that are remembered. Those of groups that were not used for the longest time are forgotten first.
COORDINATORS_MAX: Final = 10_000
# Groups of one request that names several groups.
GROUPS_PER_REQUEST: Final = 500
_GROUP: Final = 0
# The request was not carried out, and the same or another broker may carry it out later.
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordinators:
    """Use it in the event loop's thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._nodes: OrderedDict[str, int] = OrderedDict()

    async def node_of(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group. Raises KafkaError."""
        known = self._nodes.get(group_id)
        if known is not None:
            self._nodes.move_to_end(group_id)
            return known
        found = (await self._find([group_id]))[group_id]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def nodes_of(self, group_ids: Iterable[str]) -> Mapping[int, Sequence[str]]:
        """Return groups by the brokers that coordinate them, in few requests. Raises KafkaError."""
        by_node: dict[int, list[str]] = {}
        unknown: list[str] = []
        for group_id in group_ids:
            known = self._nodes.get(group_id)
            if known is None:
                unknown.append(group_id)
            else:
                by_node.setdefault(known, []).append(group_id)
        for first in range(0, len(unknown), GROUPS_PER_REQUEST):
            found = await self._find(unknown[first : first + GROUPS_PER_REQUEST])
            for group_id, node in found.items():
                if isinstance(node, KafkaError):
                    raise node
                by_node.setdefault(node, []).append(group_id)
        return by_node

    def moved(self, group_id: str) -> None:
        """The broker that was asked does not coordinate the group, or cannot be reached: ask again."""
        self._nodes.pop(group_id, None)

    async def _find(self, group_ids: Sequence[str]) -> dict[str, int | KafkaError]:
        # The versions before 4 have only `key`. Then the response has one coordinator.
        request = FindCoordinatorRequest(key=group_ids[0], key_type=_GROUP, coordinator_keys=list(group_ids))
        response: FindCoordinatorResponse = await self.cluster.request_any(FIND_COORDINATOR, request)
        found: dict[str, int | KafkaError] = {}
        if response.coordinators:
            for one in response.coordinators:
                found[one.key] = await self._learn(one.key, one.error_code, one.error_message, one.node_id)
        else:
            first, *others = group_ids
            found[first] = await self._learn(first, response.error_code, response.error_message, response.node_id)
            for other in others:
                found |= await self._find([other])
        return found

    async def _learn(self, group_id: str, code: int, message: str | None, node: int) -> int | KafkaError:
        if code:
            return refusal(f"the coordinator of group {group_id!r}", code, message or None)
        if node not in self.cluster.metadata.brokers:
            await self.cluster.refresh()
        self._nodes[group_id] = node
        if len(self._nodes) > COORDINATORS_MAX:
            self._nodes.popitem(last=False)
        return node

    async def ask(
        self,
        group_id: str,
        api: Api,
        message: Any,
        code_of: Callable[[Any], int],
        *,
        version_max: int | None = None,
        seconds: float = COORDINATOR_SECONDS,
    ) -> Any:
        """Send a request that may be carried out twice to the coordinator of a group, and return the response.

        `code_of` returns the error of the whole response, or one that passes; 0 if there is none. The request is
        repeated for `seconds` while the error passes. Raises KafkaError if it does not.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        backoff = self.cluster.backoff()
        while True:
            try:
                node = await self.node_of(group_id)
                link = self.cluster.link(node, Purpose.CONTROL)
                response = await link.request(api, message, version_max=version_max)
                code = error_code(code_of(response))
                if code not in PASSING:
                    return response
                error = refusal(f"group {group_id!r}", code)
            except KafkaError as failed:
                if failed.code not in PASSING:
                    raise
                error = failed
            if error.code in _MOVED or isinstance(error, Unreachable):
                self.moved(group_id)
            pause = backoff.next_seconds()
            if loop.time() + pause > deadline:
                raise error
            log.debug("%s of group %r is repeated: %s", api.name, group_id, error)
            await asyncio.sleep(pause)

"""CoordinatorRequests: requests to the transaction coordinator of one transactional id, wherever it moves."""

import asyncio
import logging
from typing import Any, Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import UNCERTAIN, NotSent, Unreachable, refusal
from kwire.kafka_client.link import Purpose
from kwire.kafka_client.metadata import NO_NODE
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from kwire.wire.schema import Api

log = logging.getLogger("kwire.streams.remote")

# The pauses while the coordinator ends the previous transaction, which takes a few milliseconds.
BUSY_FIRST_SECONDS: Final = 0.003
BUSY_MAX_SECONDS: Final = 0.1
_TRANSACTION: Final = 1
_COORDINATOR_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Answer(NamedTuple):
    """The coordinator's response. `is_repeated` is True if an earlier attempt may have been carried out, too."""

    response: Any
    code: int
    is_repeated: bool


class CoordinatorRequests:
    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._node = NO_NODE

    async def ask(self, api: Api, message: Any, version_max: int, *, deadline: float | None = None) -> Answer:
        """Send a request until the coordinator answers with something other than "later" or "not here".

        The request must be one that may be carried out twice. After `deadline` the last problem is raised as
        KafkaError; without one, the request is repeated until the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        backoff, busy = self._cluster.backoff(), self._cluster.backoff()
        busy.first_seconds, busy.max_seconds = BUSY_FIRST_SECONDS, BUSY_MAX_SECONDS
        is_repeated = False
        while True:
            try:
                link = self._cluster.link(await self._find(), Purpose.CONTROL)
                response = await link.request(api, message, version_max=version_max)
                code = _code_of(response)
                error: KafkaError = refusal(f"{api.name} of {self._transactional_id!r}", code)
                if code in _BUSY:
                    pause = busy.next_seconds()
                elif code in _COORDINATOR_MOVED or code in UNCERTAIN:
                    self._node = NO_NODE
                    # Also if it has moved: Apache Kafka answers so if it does not know whether its own log has the
                    # change.
                    is_repeated = True
                    pause = backoff.next_seconds()
                else:
                    return Answer(response, code, is_repeated)
            except Unreachable as unreachable:
                error = unreachable
                is_repeated |= not isinstance(unreachable, NotSent)
                self._node = NO_NODE
                pause = backoff.next_seconds()
            if deadline is not None and loop.time() + pause > deadline:
                raise error
            log.debug("%s is repeated: %s", api.name, error)
            await asyncio.sleep(pause)

    async def _find(self) -> int:
        """Return the node of the coordinator. Raises Unreachable, or KafkaError if the id may not be used."""
        if self._node != NO_NODE:
            return self._node
        key = self._transactional_id
        request = FindCoordinatorRequest(key=key, key_type=_TRANSACTION, coordinator_keys=[key])
        response = await self._cluster.request_any(FIND_COORDINATOR, request)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise NotSent(f"the transaction coordinator of {key!r} is not available yet")
        if found.error_code:
            raise refusal(f"transactional id {key!r}", found.error_code, found.error_message)
        if found.node_id not in self._cluster.metadata.brokers:
            await self._cluster.refresh()
        self._node = found.node_id
        return self._node


def _code_of(response: Any) -> int:
    code = getattr(response, "error_code", 0)
    if code:
        return int(code)
    # AddPartitionsToTxn has an error code for each partition. All are the same if the whole request is refused.
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        for one in topic.results_by_partition:
            if one.partition_error_code and one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                return int(one.partition_error_code)
    return 0

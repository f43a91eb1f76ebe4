"""The quotas of a connection: charges its requests, puts throttle times into its responses, and mutes it.

As in Kafka (KIP-219) a response is sent immediately with its throttle time. The server then reads nothing from the
connection until this time is over. A connection whose client has no quota has no object of this class.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kwire.access.quotas.client_quota import MS, ClientQuota
from kwire.handlers.shared.context import BlockingContinuation, Context, DeferredFrame, OrderedRest, TemplateCache
from kwire.server.kafka.routes import Route
from kwire.wire.apis import PRODUCE
from kwire.wire.messages.write_txn_markers import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

# A muted connection is checked again after this time, so that one that was closed is not kept in memory for longer.
MUTE_STEP_SECONDS = 10.0
# As in Kafka, requests between brokers have no request quota.
EXEMPT_KEYS = frozenset({WRITE_TXN_MARKERS.key})


class ConnectionQuota:
    """The quotas of one connection's client. It is replaced when the quotas or the client id change."""

    __slots__ = ("_connection", "client")

    def __init__(self, connection: "KafkaConnection", client: ClientQuota) -> None:
        self._connection = connection
        self.client = client

    # --- requests that are answered from a template

    def answer(self, cache: TemplateCache, frame: memoryview) -> bytes | DeferredFrame | None:
        """Answer a request from a template and charge it. Return None if the request must be decoded."""
        began = perf_counter()
        answer = cache.answer(frame)
        if answer is None:
            return None
        client = self.client
        throttle_ms = client.produced(len(frame)) if cache.is_produce else 0
        throttle_ms = max(throttle_ms, client.handled(perf_counter() - began))
        if not throttle_ms:
            return answer
        self._connection.mute(throttle_ms / MS)
        version = int.from_bytes(frame[2:4])
        if isinstance(answer, bytes):
            return cache.with_throttle_time(answer, version, throttle_ms)
        later = DeferredFrame()
        answer.on_complete(lambda framed: later.complete(cache.with_throttle_time(framed, version, throttle_ms)))
        return later

    # --- all other requests

    def handle(self, route: Route, context: Context, request: Any, size_bytes: int, began: float) -> Any:
        """Call the handler and charge the request. Returns what the handler returned, with the throttle time."""
        answer = route.handle(context, request)
        # A Produce is charged when it was received, and everything else when its response is known.
        throttle_ms = self.client.produced(size_bytes) if route.api is PRODUCE else 0
        if throttle_ms:
            self._connection.mute(throttle_ms / MS)
        charge = partial(self._charged, route, throttle_ms, perf_counter() - began)
        if type(answer) is BlockingContinuation:
            return answer._replace(rest=_ChargedRest(answer.rest, charge))
        return _ChargedResponse(answer, charge) if isinstance(answer, Awaitable) else charge(answer)

    def _charged(self, route: Route, throttle_ms: int, seconds: float, answer: Any) -> Any:
        """Charge the time of a request. Returns its response with the throttle time, and mutes the connection."""
        if answer is None or route.api.key in EXEMPT_KEYS:
            # As in Kafka the request quota does not apply to a Produce with acks=0.
            return answer
        # Handlers that decide about a quota themselves, such as that of Fetch, have set the throttle time.
        decided_ms = max(throttle_ms, getattr(answer, "throttle_time_ms", 0))
        total_ms = max(decided_ms, self.client.handled(seconds))
        if not total_ms:
            return answer
        self._connection.mute(total_ms / MS)
        if getattr(answer, "throttle_time_ms", total_ms) == total_ms:
            return answer
        answer = copy.copy(answer)  # some responses are shared by requests
        answer.throttle_time_ms = total_ms
        return answer


Charge = Callable[[Any], Any]


class _ChargedResponse(asyncio.Future[Any]):
    """A response that is charged when it is known. Its `cancel` cancels the work for it."""

    __slots__ = ("_charge", "_response")

    def __init__(self, response: Awaitable[Any], charge: Charge) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._charge = charge
        self._response = asyncio.ensure_future(response)
        self._response.add_done_callback(self._complete)

    def cancel(self, msg: Any | None = None) -> bool:
        self._response.cancel()
        return super().cancel(msg)

    def _complete(self, response: "asyncio.Future[Any]") -> None:
        error = None if response.cancelled() else response.exception()
        if self.done():
            return
        if response.cancelled():
            super().cancel()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(self._charge(response.result()))


class _ChargedRest:
    """The rest of an ordered phase whose response is charged at its end."""

    __slots__ = ("_charge", "_rest")

    def __init__(self, rest: OrderedRest, charge: Charge) -> None:
        self._rest = rest
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, Any]:
        answer = yield from self._rest.__await__()
        return _ChargedResponse(answer, self._charge) if isinstance(answer, Awaitable) else self._charge(answer)

    def close(self) -> None:
        self._rest.close()

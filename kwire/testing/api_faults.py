"""Faults of Kafka APIs in the server process: handlers that fail, answer late or close the connection when told to."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from kwire.errors import ErrorCode
from kwire.handlers.shared.context import BlockingContinuation, Context, DropConnection, Handler, OrderedRest
from kwire.testing.error_responses import can_fail, error_response
from kwire.testing.faults import ALL_APIS
from kwire.wire.messages.fetch import FETCH, FetchResponse
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.schema import Api

# A test that injects more has an error: it never removes them.
FAULTS_MAX = 10_000

Handle = Callable[[Context, Any], Any]


class Abortable(Protocol):
    """A connection that can be closed without a response."""

    def abort(self) -> None: ...


@dataclass(eq=False)
class ApiFault:
    """A fault of one API or of all. `left` is the number of requests that it still affects, None for no limit."""

    number: int
    api: str
    left: int | None
    error: ErrorCode | None = None
    delay_s: float = 0.0
    disconnect: str | None = None
    hits: int = 0

    def hit(self) -> None:
        self.hits += 1
        if self.left is not None:
            self.left -= 1


class ApiFaults:
    """The faults of Kafka APIs, and the handlers that obey them."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._apis = {handler.api.name: handler.api for handler in handlers.values()}
        self._faults: dict[int, ApiFault] = {}
        self._numbers = count(1)
        # Templates answer requests without a call of their handler, so there are none.
        self.handlers = {
            key: handler._replace(handle=self._obeying(handler.api, handler.handle), template_cache=None)
            for key, handler in handlers.items()
        }

    def add(
        self, kind: str, api: str, times: int | None, code: str | int = 0, seconds: float = 0.0, when: str = "before"
    ) -> int:
        """Add a fault and return its number. Raises ValueError."""
        if api != ALL_APIS and api not in self._apis:
            raise ValueError(f'"{api}" is not an API of this server: name one of {", ".join(sorted(self._apis))}')
        if times is not None and times < 1:
            raise ValueError(f"times must be None or a positive number, got {times}")
        if len(self._faults) >= FAULTS_MAX:
            raise ValueError(f"there are {FAULTS_MAX} faults: remove those that are no longer needed")
        fault = ApiFault(next(self._numbers), api, times)
        if kind == "error":
            fault.error = _error_of(code)
            if api != ALL_APIS and not can_fail(self._apis[api].response):
                raise ValueError(f"responses of {api} have no error code")
        elif kind == "delay":
            if not seconds > 0:
                raise ValueError(f"seconds must be positive, got {seconds}")
            fault.delay_s = seconds
        elif kind == "disconnect" and when in ("before", "after"):
            fault.disconnect = when
        else:
            raise ValueError(f'when must be "before" or "after", got "{when}"')
        self._faults[fault.number] = fault
        return fault.number

    def hits(self, number: int) -> int:
        fault = self._faults.get(number)
        if fault is None:
            raise ValueError("the fault was removed")
        return fault.hits

    def remove(self, number: int) -> None:
        self._faults.pop(number, None)

    def clear(self) -> None:
        self._faults.clear()

    def _obeying(self, api: Api, handle: Handle) -> Handle:
        def handle_with_faults(context: Context, request: Any) -> Any:
            if not self._faults:
                return handle(context, request)
            return self._handle(api, handle, context, request)

        return handle_with_faults

    def _handle(self, api: Api, handle: Handle, context: Context, request: Any) -> Any:
        active = [one for one in self._faults.values() if one.api in (api.name, ALL_APIS) and one.left != 0]
        for fault in active:
            if fault.error is not None:
                answer = _failed(api, handle, context, request, fault.error)
                if answer is not None:
                    fault.hit()
                    return self._delayed(active, answer)
            elif fault.disconnect == "before":
                fault.hit()
                raise DropConnection("a test has injected this")
            elif fault.disconnect == "after":
                fault.hit()
                return _aborted_after(context, handle(context, request))
        return self._delayed(active, handle(context, request))

    def _delayed(self, active: list[ApiFault], answer: Any) -> Any:
        delays = [fault for fault in active if fault.delay_s]
        if not delays or answer is None:
            return answer
        for fault in delays:
            fault.hit()
        seconds = sum(fault.delay_s for fault in delays)
        if isinstance(answer, BlockingContinuation):
            return BlockingContinuation(
                _ContinuedRest(answer.rest, lambda last: _late(last, seconds)), answer.keeps_frame
            )
        return _late(answer, seconds)


def _error_of(code: str | int) -> ErrorCode:
    try:
        found = ErrorCode[code] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        raise ValueError(f"{code!r} is not an error of Kafka") from None
    if found is ErrorCode.NONE:
        raise ValueError("NONE is not an error")
    return found


def _failed(api: Api, handle: Handle, context: Context, request: Any, code: ErrorCode) -> Any | None:
    """Return a response with an error. None means that this request cannot fail in this way, so it is handled."""
    if api is METADATA:
        # A client needs the brokers of the response, and the request does not name all topics that it asks for.
        return _failed_metadata(handle(context, request), code)
    if api is FETCH:
        if not request.topics:
            # An incremental request of a fetch session names no partition. The client repeats it with all of them.
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        return error_response(api.response, context.api_version, request, code, at_top=False)
    if api is PRODUCE and request.acks == 0:
        # Nobody reads a response. As in Kafka, the client learns of the error by a closed connection.
        raise DropConnection(f"a test has injected {code.name}")
    return error_response(api.response, context.api_version, request, code)


async def _failed_metadata(answer: Any, code: ErrorCode) -> Any:
    response = await answer if isinstance(answer, Awaitable) else answer
    if isinstance(response.topics, list):
        for topic in response.topics:
            topic.error_code, topic.partitions = code, []
    return response


async def _late(answer: Any, seconds: float) -> Any:
    response = await answer if isinstance(answer, Awaitable) else answer
    await asyncio.sleep(seconds)
    return response


def _aborted_after(context: Context, answer: Any) -> Any:
    """Return what closes the connection when the request has been carried out."""
    peer: Any = context.peer
    if isinstance(answer, BlockingContinuation):
        return BlockingContinuation(_ContinuedRest(answer.rest, lambda last: _abort(peer, last)), answer.keeps_frame)
    return _abort(peer, answer)


async def _abort(peer: Abortable, answer: Any) -> Any:
    response = await answer if isinstance(answer, Awaitable) else answer
    peer.abort()
    return response


class _ContinuedRest:
    """The rest of an ordered phase, whose answer is passed to `then`."""

    def __init__(self, rest: OrderedRest, then: Callable[[Any], Any]) -> None:
        self._rest = rest
        self._then = then

    def __await__(self) -> Generator[Any, Any, Any]:
        answer = yield from self._rest.__await__()
        return None if answer is None else self._then(answer)

    def close(self) -> None:
        self._rest.close()

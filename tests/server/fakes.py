"""A connection whose socket is a list: every move it makes can be seen, every move of the client is a call."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kwire.config import Listener
from kwire.descriptors import Descriptors, current_limit
from kwire.handlers.shared.context import Context, Handler, Services
from kwire.metrics import ServerMetrics
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.listener import KafkaListener
from kwire.server.kafka.shared import Shared
from kwire.wire.apis import DESCRIBE_CLUSTER, HEARTBEAT, INIT_PRODUCER_ID
from kwire.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.wire.types import Buffer
from tests.server.frames import frame, split

LISTENER = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)


class FakeTransport:
    """What a connection may ask of its socket. `unsent` is what the client has not taken."""

    def __init__(self, host: str = "192.0.2.1") -> None:
        self.host = host
        self.sent = bytearray()
        self.unsent_bytes = 0
        self.is_reading = True
        self.is_closed = False
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.host, 50000), "sockname": ("198.51.100.1", 9092), "socket": None}[name]

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Buffer) -> None:
        assert not self.is_closing(), "written after the end"
        self.sent += data

    def writelines(self, parts: Iterable[Buffer]) -> None:
        for part in parts:
            self.write(part)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted


class Slow:
    """Handlers of three APIs: InitProducerId waits for the test, DescribeCluster is answered at once, Heartbeat never.

    `waiting` holds the unanswered requests by the number the client gave them.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.handled: list[str] = []
        self.fault: Callable[[], Any] | None = None

    def wait(self, context: Context, request: InitProducerIdRequest) -> asyncio.Future[Any]:
        self.handled.append(f"wait {request.transaction_timeout_ms}")
        future = asyncio.get_running_loop().create_future()
        self.waiting[request.transaction_timeout_ms] = future
        return future

    def answer(self, context: Context, request: DescribeClusterRequest) -> Any:
        self.handled.append("answer")
        if self.fault is not None:
            return self.fault()
        return DescribeClusterResponse(error_code=0, cluster_id="c", brokers=[])

    def ignore(self, context: Context, request: HeartbeatRequest) -> HeartbeatResponse | None:
        self.handled.append("ignore")
        return None

    def handlers(self) -> dict[int, Handler]:
        handlers = (Handler(INIT_PRODUCER_ID, self.wait, ()), Handler(DESCRIBE_CLUSTER, self.answer, ()))
        return {handler.api.key: handler for handler in (*handlers, Handler(HEARTBEAT, self.ignore, ()))}

    def release(self, number: int) -> None:
        self.waiting.pop(number).set_result(InitProducerIdResponse(error_code=0, producer_id=number, producer_epoch=0))


def waiting_frame(number: int, correlation_id: int | None = None) -> bytes:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=number)
    return frame(request, 0, number if correlation_id is None else correlation_id)


def answered_frame(correlation_id: int) -> bytes:
    return frame(DescribeClusterRequest(include_cluster_authorized_operations=False), 0, correlation_id)


def ignored_frame(correlation_id: int) -> bytes:
    return frame(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, correlation_id)


class FakeClient:
    """A connection of the server and the client on its other end."""

    def __init__(self, shared: Shared, listener: KafkaListener | None = None, host: str = "192.0.2.1") -> None:
        self.transport = FakeTransport(host)
        self.connection = KafkaConnection(shared, listener or KafkaListener(LISTENER, None, shared))
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Let the bytes arrive as the event loop delivers them: as long as the server reads, each read in its turn."""
        view = memoryview(data)
        while view:
            assert self.transport.is_reading, f"the server does not read; {len(view)} bytes are left"
            view = view[self.deliver(view) :]

    def deliver(self, view: memoryview) -> int:
        """One read, and the end of the loop iteration; how much of it was taken."""
        taken = self.deliver_in_turn(view)
        self.connection.send()
        self.connection._shared.loop_budget.reset()
        return taken

    def deliver_in_turn(self, view: memoryview) -> int:
        """One read of several in a loop iteration; how much of it was taken."""
        buffer = self.connection.get_buffer(-1)
        assert len(buffer) > 0
        taken = min(len(buffer), len(view))
        buffer[:taken] = view[:taken]
        self.connection.buffer_updated(taken)
        return taken

    def send_while_read(self, data: bytes) -> int:
        """How many bytes the server reads before it stops."""
        view, taken = memoryview(data), 0
        while taken < len(view) and self.transport.is_reading:
            taken += self.deliver(view[taken:])
        return taken

    # Questions rather than attributes, so that a type checker does not take the first answer for the last.

    def is_read(self) -> bool:
        return self.transport.is_reading

    def is_stuck(self) -> bool:
        return self.connection.stuck_since is not None

    def is_closed(self) -> bool:
        return self.transport.is_closed

    def received(self) -> list[int]:
        """The correlation ids of all answers so far, those of the turn that just ended included."""
        self.connection.send()
        return [int.from_bytes(one[:4], "big") for one in split(bytes(self.transport.sent))]

    def lose(self) -> None:
        """The connection is gone; nothing is asked of it any more."""
        self.transport.is_closed = True
        self.connection.connection_lost(None)


def shared_of(services: Services, handlers: dict[int, Handler]) -> Shared:
    metrics = ServerMetrics({key: handler.api.name for key, handler in handlers.items()})
    return Shared(handlers, services, metrics, Descriptors(current_limit(), open_logs_max=1))

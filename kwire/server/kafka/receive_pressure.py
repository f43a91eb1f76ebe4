"""Closes connections that send a request slowly, if the memory for requests is used up.

While memory is free, a client may send a request at any speed, with the exception below. When a connection cannot be
read because no memory is free, the server closes connections whose incomplete request arrives at less than
`kwire.receive.rate.min` bytes per second. The rate is measured over `kwire.receive.window.ms`, and not while a
connection is starved. The slowest connections are closed first, and only as many as are necessary.

A connection whose request arrives at less than SLOW_SHARE of that rate for SLOW_SECONDS_MAX is always closed. Such a
client has most likely failed, or is hostile.

If these rules do not free enough memory, all incomplete requests wait for each other's memory. The sweep of the
listener then closes connections that have waited longer than `kwire.send.timeout.ms`, so that the others can continue.
"""

from collections.abc import Generator
from typing import NamedTuple

from kwire.concurrency.chunking import schedule_chunk
from kwire.server.kafka.connection import KafkaConnection
from kwire.server.kafka.shared import Shared

# If a request arrives at less than SLOW_SHARE of `kwire.receive.rate.min` for SLOW_SECONDS_MAX, its connection is
# closed.
SLOW_SECONDS_MAX = 30.0
SLOW_SHARE = 1 / 32
# The maximum number of connections that are closed or resumed in one chunk. Each takes a tenth of a millisecond.
GIVEN_UP_PER_CHUNK = 5


class _Progress(NamedTuple):
    """The receive rate of an incomplete request.

    `began` and `received_bytes` are the time and the byte count at the start of the current window. `rate` is the rate
    in the last complete window, or None before the first one. `slow_since` is set if the last window had less than
    SLOW_SHARE of the minimum rate. It is the start of the first of the consecutive windows with such a rate.
    """

    began: float
    received_bytes: int
    rate: float | None
    slow_since: float | None


class ReceivePressure:
    """Measures the receive rates of incomplete requests and closes slow connections.

    `observe` is called about once a second for every connection, and then `end_round`.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._progress: dict[KafkaConnection, _Progress] = {}
        # That of the round that has not ended.
        self._observed: dict[KafkaConnection, _Progress] = {}
        self._giving_up: Generator[None, None, None] | None = None

    def observe(self, connection: KafkaConnection, now: float) -> None:
        """Measure the receive rate of a connection, if a request was received in part."""
        if not connection.is_receiving:
            return
        received_bytes = connection.reader.received_bytes
        known = self._progress.get(connection)
        if known is None or connection.reader.is_starved:
            known = _Progress(now, received_bytes, None, None)
        elif now - known.began >= self._shared.network.receive_window_ms / 1000:
            rate = (received_bytes - known.received_bytes) / (now - known.began)
            is_slow = rate < SLOW_SHARE * self._shared.network.receive_rate_min
            slow_since = (known.slow_since or known.began) if is_slow else None
            known = _Progress(now, received_bytes, rate, slow_since)
        self._observed[connection] = known

    def end_round(self, now: float) -> None:
        """Close slow connections, when all connections were observed."""
        self._progress, self._observed = self._observed, {}
        if self._giving_up is None:
            self._giving_up = self._steps(now)
            self._step()

    def _step(self) -> None:
        """Close the connections of one chunk, and schedule the next chunk."""
        assert self._giving_up is not None
        try:
            next(self._giving_up)
        except StopIteration:
            self._giving_up = None
        else:
            schedule_chunk(self._step)

    def _steps(self, now: float) -> Generator[None, None, None]:
        yield from self._give_up_stalled(now)
        if self._shared.starved:
            yield from self._relieve()

    def _give_up_stalled(self, now: float) -> Generator[None, None, None]:
        left = GIVEN_UP_PER_CHUNK
        for connection, progress in tuple(self._progress.items()):
            if progress.slow_since is not None and now - progress.slow_since >= SLOW_SECONDS_MAX:
                if not left:
                    left = GIVEN_UP_PER_CHUNK
                    yield
                if connection.is_receiving:
                    left -= 1
                    self._progress.pop(connection, None)
                    self._give_up(connection, "for too long")

    def _relieve(self) -> Generator[None, None, None]:
        slow = self._slow_connections()
        left = GIVEN_UP_PER_CHUNK
        for starved in tuple(self._shared.starved):
            while not starved.reader.has_room:
                # The connection gets no memory. If the server still has free memory, the share of this client host is
                # used up. Only other requests of the same host can then free memory for the connection.
                account = starved.reader.account if starved.reader.has_memory else None
                victim = next(
                    (one for one in slow if one is not starved and account in (None, one.reader.account)), None
                )
                if victim is None:
                    break
                slow.remove(victim)
                # Since the list was made, the request of the victim may have been received completely.
                if victim.is_receiving:
                    left -= 1
                    self._give_up(victim, "that others need")
            starved.try_reading()
            left -= 1
            if left <= 0:
                left = GIVEN_UP_PER_CHUNK
                yield

    def _give_up(self, victim: KafkaConnection, which: str) -> None:
        self._shared.metrics.connections_failed += 1
        self._shared.rate_limited_log.warning(
            "closing the connection from %s: its unfinished request holds %d bytes %s, and arrives with less than "
            "kwire.receive.rate.min=%d bytes a second",
            victim.client_host,
            victim.reader.held_bytes,
            which,
            self._shared.network.receive_rate_min,
        )
        victim.give_up()

    def _slow_connections(self) -> list[KafkaConnection]:
        """Return the connections that send at less than the minimum rate, the slowest first."""
        rates = [
            (progress.rate, connection)
            for connection, progress in self._progress.items()
            if progress.rate is not None and progress.rate < self._shared.network.receive_rate_min
        ]
        return [connection for _, connection in sorted(rates, key=lambda one: one[0])]

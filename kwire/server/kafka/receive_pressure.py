"""What happens when the memory for requests is used up: connections that hold it without progress give it up first.

While there is memory a client may send a request as slowly as it likes. As soon as another connection cannot be read
for want of memory, unfinished requests are given up that arrive with less than `kwire.receive.rate.min` bytes a second,
measured over `kwire.receive.window.ms`: the slowest first, and no more of them than the others need. The time in which
a connection is not read does not count against it.

A request that arrives with less than a thirty-second of that rate for SLOW_SECONDS_MAX is given up in any case: such a
client has most likely gone, or means no good.

If that is not enough, requests that are all half there wait for each other. Then those are given up that have waited
for memory for longer than the window, for the sake of those that came later: most of the former have held what they
have for long, and their clients are about to lose patience anyway.
"""

from typing import NamedTuple

from kwire.server.kafka import KafkaConnection, Shared

# How long a request may arrive with next to nothing, and what that is: this part of `kwire.receive.rate.min`.
SLOW_SECONDS_MAX = 30.0
SLOW_SHARE = 1 / 32


class _Progress(NamedTuple):
    """How an unfinished request arrives.

    `rate` is that of the last whole window, None before its end; `slow_since` is when the first of the windows began in
    which next to nothing arrived.
    """

    began: float
    received_bytes: int
    rate: float | None
    slow_since: float | None


class ReceivePressure:
    """Watches unfinished requests; `check` is called about once a second."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._progress: dict[KafkaConnection, _Progress] = {}

    def check(self, now: float) -> None:
        window_s = self._shared.network.receive_window_ms / 1000
        progress: dict[KafkaConnection, _Progress] = {}
        for connection in self._shared.connections:
            if not connection.is_receiving:
                continue
            received_bytes = connection.reader.received_bytes
            known = self._progress.get(connection)
            if known is None or connection.reader.is_starved:
                known = _Progress(now, received_bytes, None, None)
            elif now - known.began >= window_s:
                rate = (received_bytes - known.received_bytes) / (now - known.began)
                is_slow = rate < SLOW_SHARE * self._shared.network.receive_rate_min
                slow_since = (known.slow_since or known.began) if is_slow else None
                known = _Progress(now, received_bytes, rate, slow_since)
            progress[connection] = known
        self._progress = progress
        self._give_up_stalled(now)
        if self._shared.starved:
            self._relieve()

    def _give_up_stalled(self, now: float) -> None:
        for connection, progress in tuple(self._progress.items()):
            if progress.slow_since is not None and now - progress.slow_since >= SLOW_SECONDS_MAX:
                del self._progress[connection]
                self._give_up(connection, "that have not arrived whole for long")

    def _relieve(self) -> None:
        slow = self._slow_connections()
        for starved in tuple(self._shared.starved):
            while not starved.reader.has_room:
                # The share of its address is used up if the memory as such is not: then others have nothing to give.
                account = starved.reader.account if starved.reader.has_memory else None
                victim = next(
                    (one for one in slow if one is not starved and account in (None, one.reader.account)), None
                )
                if victim is None:
                    break
                slow.remove(victim)
                self._give_up(victim, "that others need")
            starved.try_reading()

    def _give_up(self, victim: KafkaConnection, which: str) -> None:
        self._shared.metrics.connections_failed += 1
        self._shared.complaints.add(
            "closing the connection from %s: its unfinished request holds %d bytes %s, and arrives with less than "
            "kwire.receive.rate.min=%d bytes a second",
            victim.client_host,
            victim.reader.held_bytes,
            which,
            self._shared.network.receive_rate_min,
        )
        victim.give_up()

    def _slow_connections(self) -> list[KafkaConnection]:
        """Those that are read and send too little, the slowest first."""
        rates = [
            (progress.rate, connection)
            for connection, progress in self._progress.items()
            if progress.rate is not None and progress.rate < self._shared.network.receive_rate_min
        ]
        return [connection for _, connection in sorted(rates, key=lambda one: one[0])]

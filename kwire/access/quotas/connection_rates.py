"""The rates at which connections are created: of the broker, of each listener and of each address."""

from collections.abc import Callable
from typing import NamedTuple

from kwire.access.quotas.quotas import Quotas
from kwire.access.quotas.rate_window import MS, RateWindow


class Arrival(NamedTuple):
    """What happens to a new connection: it is served after a delay, or closed after a delay."""

    delay_s: float = 0.0
    is_refused: bool = False


IMMEDIATELY = Arrival()


class ConnectionRates:
    """Decides about each new connection. As in Kafka, no delay is longer than one sample of the window.

    A connection that exceeds the quota of its address is closed. One that exceeds the rate of its listener or of the
    broker waits.
    """

    def __init__(self, quotas: Quotas, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now = now
        self._broker = self._new_window()
        self._listeners: dict[str, RateWindow] = {}

    def arrive(self, listener: str, ip: str, broker_max: int, listener_max: int, unlimited: int) -> Arrival:
        """Count a new connection. A maximum of `unlimited` is none."""
        meter = self._quotas.connections_of(ip)
        now = self._now()
        if meter is not None and (throttle_ms := meter.offer(1, now)):
            throttle_ms = self._bounded_ms(throttle_ms)
            meter.note_throttle(throttle_ms)
            return Arrival(throttle_ms / MS, is_refused=True)
        delay_ms = 0
        if broker_max < unlimited:
            delay_ms = self._delay_ms(self._broker, broker_max, now)
        if listener_max < unlimited:
            window = self._listeners.get(listener)
            if window is None:  # bounded by the number of configured listeners
                window = self._listeners[listener] = self._new_window()
            delay_ms = max(delay_ms, self._delay_ms(window, listener_max, now))
        return Arrival(delay_ms / MS) if delay_ms else IMMEDIATELY

    def _delay_ms(self, window: RateWindow, limit: int, now: float) -> int:
        window.add(1, now)
        # The setting may be 0. Then every connection has the longest delay.
        return self._bounded_ms(window.throttle_ms(limit, now)) if limit else round(window.sample_s * MS)

    def _bounded_ms(self, throttle_ms: int) -> int:
        return min(throttle_ms, round(self._quotas.window.sample_s * MS))

    def _new_window(self) -> RateWindow:
        return RateWindow(self._quotas.window.sample_count, self._quotas.window.sample_s)

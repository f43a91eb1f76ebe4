"""When to try again: the schedule of a webhook, with some chance in it, and what its receiver asked for.

Receivers that were down come back to many failed deliveries; without jitter all of them would be tried in the same
moment, and again at each later step.
"""

from collections.abc import Callable, Sequence

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

# The pauses behind the first attempt, the second, …; after the last attempt the event is a dead letter.
DEFAULT_SCHEDULE_MS = (
    *(5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 10 * HOUR_MS),
)
# A pause is made longer or shorter by up to this part of it.
JITTER = 0.2
# What a receiver can ask for with Retry-After; more is taken as this.
RETRY_AFTER_MS_MAX = 24 * HOUR_MS


class Schedule:
    """`chance` gives numbers from 0 up to 1."""

    def __init__(self, pauses_ms: Sequence[int], chance: Callable[[], float]) -> None:
        self._pauses_ms = tuple(pauses_ms)
        self._chance = chance
        # No pause that was ever asked for is longer: a due time further ahead comes from a clock that was wrong.
        self.pause_ms_max = int(max((*self._pauses_ms, RETRY_AFTER_MS_MAX)) * (1 + JITTER)) + 1

    def due_ms(self, attempts: int, now_ms: int, retry_after_ms: int | None) -> int | None:
        """When the next attempt is due after so many; None if that was the last."""
        if attempts > len(self._pauses_ms):
            return None
        pause_ms = self._pauses_ms[attempts - 1] * (1 + JITTER * (2 * self._chance() - 1))
        # Never before what the receiver asked for; many that were told the same need not come at once either.
        asked_ms = asked_pause_ms(retry_after_ms) * (1 + JITTER * self._chance())
        return now_ms + max(round(pause_ms), round(asked_ms))

    def is_due(self, due_ms: int, now_ms: int) -> bool:
        return due_ms <= now_ms or due_ms - now_ms > self.pause_ms_max


def asked_pause_ms(retry_after_ms: int | None) -> int:
    """What a receiver asked for, as far as it is granted."""
    return min(max(retry_after_ms or 0, 0), RETRY_AFTER_MS_MAX)

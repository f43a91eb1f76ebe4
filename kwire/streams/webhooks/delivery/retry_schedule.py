"""The retry schedule of webhooks, with jitter and Retry-After.

When a receiver is down, many deliveries fail. Without jitter, all of them would be retried at the same time, and again
at each later step of the schedule.
"""

from collections.abc import Callable, Sequence

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS

# The pauses after the first failed attempt, after the second, and so on. If the attempt after the last pause fails, the
# event becomes a dead letter.
DEFAULT_SCHEDULE_MS = (
    *(5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 10 * HOUR_MS),
)
# A pause is lengthened or shortened by up to this fraction.
JITTER = 0.2
# The longest pause that a receiver can request with Retry-After.
RETRY_AFTER_MS_MAX = 24 * HOUR_MS


class Schedule:
    """The pauses between attempts. `chance` returns random numbers from 0 to 1."""

    def __init__(self, pauses_ms: Sequence[int], chance: Callable[[], float]) -> None:
        self._pauses_ms = tuple(pauses_ms)
        self._chance = chance
        # The longest possible pause. A due time further in the future was computed while the system clock was wrong, so
        # `is_due` treats it as reached.
        self.pause_ms_max = int(max((*self._pauses_ms, RETRY_AFTER_MS_MAX)) * (1 + JITTER)) + 1

    def due_ms(self, attempts: int, now_ms: int, retry_after_ms: int | None) -> int | None:
        """Return the due time of the next attempt after `attempts` failed ones; None if there is no next attempt."""
        if attempts > len(self._pauses_ms):
            return None
        pause_ms = self._pauses_ms[attempts - 1] * (1 + JITTER * (2 * self._chance() - 1))
        # Many deliveries may have received the same Retry-After, so this pause has jitter too. The jitter only
        # lengthens the pause, because the attempt must not start before the requested time.
        requested_ms = granted_pause_ms(retry_after_ms) * (1 + JITTER * self._chance())
        return now_ms + max(round(pause_ms), round(requested_ms))

    def is_due(self, due_ms: int, now_ms: int) -> bool:
        return due_ms <= now_ms or due_ms - now_ms > self.pause_ms_max


def granted_pause_ms(retry_after_ms: int | None) -> int:
    """Return the pause that a receiver requested, limited to RETRY_AFTER_MS_MAX; 0 if it requested none."""
    return min(max(retry_after_ms or 0, 0), RETRY_AFTER_MS_MAX)

"""Rate-limited warnings about misbehaving clients, so that a hostile client cannot fill the disk with log messages."""

import logging
from collections.abc import Mapping

PER_ROUND_MAX = 10


class RateLimitedLog:
    """Logs at most PER_ROUND_MAX warnings per round. `end_round` logs the number of warnings that were dropped.

    `end_round` is called once a second.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._count = 0

    def warning(self, message: str, *details: object, extra: Mapping[str, object] | None = None) -> None:
        self._count += 1
        if self._count <= PER_ROUND_MAX:
            self._log.warning(message, *details, extra=extra)

    def end_round(self) -> None:
        if self._count > PER_ROUND_MAX:
            self._log.warning("%d more warnings like these within a second", self._count - PER_ROUND_MAX)
        self._count = 0

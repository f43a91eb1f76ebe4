"""The log of a client library, for clients that report the cause of a failure only there."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def captured_log(name: str) -> Iterator[list[str]]:
    """Collect the warnings and errors of a logger, those of all threads."""
    handler = _Lines()
    logger = logging.getLogger(name)
    # Commands of kwire that ran in this process have silenced the logger.
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

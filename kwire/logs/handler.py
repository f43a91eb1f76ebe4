"""Writes the log lines of this process to a stream, in one of the two formats, at a bounded rate."""

import logging
import time
from typing import TextIO

from kwire.colours import is_coloured
from kwire.logs.line_formats import JSON, JsonFormat, TextFormat
from kwire.logs.repeat_limit import INTERVAL_SECONDS, LeftOut, RepeatLimit
from kwire.logs.traceback_filter import TracebackFilter

LEFT_OUT_TEXT = "%d more lines like this were left out within %d s: %s"


class LogHandler(logging.StreamHandler[TextIO]):
    """The handler of the root logger. Repeated lines are bounded by `RepeatLimit`."""

    def __init__(self, stream: TextIO, line_format: str) -> None:
        super().__init__(stream)
        self.has_colour = line_format != JSON and is_coloured(stream)
        self.setFormatter(JsonFormat() if line_format == JSON else TextFormat(has_colour=self.has_colour))
        self.addFilter(TracebackFilter())
        self._limit = RepeatLimit()

    def emit(self, record: logging.LogRecord) -> None:
        # The logging module calls this method of one handler in one thread at a time.
        now = time.monotonic()
        self._report(self._limit.take_due(now))
        if self._limit.admit(record, now):
            super().emit(record)

    def report_left_out(self) -> None:
        """Write the numbers of lines that were left out in intervals that have ended. Called about every interval."""
        self.acquire()
        try:
            self._report(self._limit.take_due(time.monotonic()))
        finally:
            self.release()

    def close(self) -> None:
        self.acquire()
        try:
            self._report(self._limit.take_all())
        finally:
            self.release()
        super().close()

    def _report(self, left_out: list[LeftOut]) -> None:
        for kind, count in left_out:
            values = (count, INTERVAL_SECONDS, kind.message)
            super().emit(logging.LogRecord(kind.logger, kind.level, "", 0, LEFT_OUT_TEXT, values, None))


def configure_logging(level: str, line_format: str, stream: TextIO) -> LogHandler:
    """Write the log of this process to the stream, from now on. Replaces the handlers of the root logger."""
    handler = LogHandler(stream, line_format)
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)
    return handler

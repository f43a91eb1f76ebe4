"""The log lines and the banner about the start and the stop of the server process.

With the text format the banner reports a start. With the JSON format a line with the same facts as fields reports it.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable

from kwire.logs.banner import banner, counted, open_to_all_text, recovery_text
from kwire.logs.handler import LogHandler, configure_logging
from kwire.logs.line_formats import JSON
from kwire.logs.log_context import fields
from kwire.logs.repeat_limit import INTERVAL_SECONDS
from kwire.logs.start_report import ConnectionCounts, StartReport

log = logging.getLogger("kwire.server")


class ServerLog:
    """The log of a server process, from its start to its end. `print_error` prints an error for people."""

    def __init__(self, level: str, line_format: str, print_error: Callable[[str], None]) -> None:
        self._format = line_format
        self._print_error = print_error
        self._handler: LogHandler = configure_logging(level, line_format, sys.stderr)
        self._began = time.monotonic()
        self._stop_began = 0.0

    def starting(self, version: str, data_dirs: tuple[str, ...]) -> None:
        python = f"Python {sys.version.split()[0]}"
        log.info("kwire %s starts: process %d, %s, data in %s", version, os.getpid(), python, ", ".join(data_dirs))
        self._report_left_out()

    def ready(self, report: StartReport) -> None:
        """Report that clients are served."""
        seconds = time.monotonic() - self._began
        if report.open_to_all is not None:
            log.warning("%s", open_to_all_text(report.open_to_all))
        if self._format == JSON:
            if report.recovery.is_needed:
                log.warning("%s", recovery_text(report.recovery))
            facts = report._asdict()
            facts["recovery"] = report.recovery._replace(seconds=round(report.recovery.seconds, 3))._asdict()
            del facts["open_to_all"]
            facts["listeners"] = [one._asdict() for one in report.listeners]
            log.info("ready", extra=fields(start_seconds=round(seconds, 3), **facts))
        else:
            sys.stderr.write(banner(report, seconds, has_colour=self._handler.has_colour))
            sys.stderr.flush()

    def failed(self, reason: str) -> None:
        """Report why the server does not start."""
        if self._format == JSON:
            log.critical("%s", reason)
        else:
            self._print_error(reason)

    def stopping(self, reason: str, connections: ConnectionCounts) -> None:
        self._stop_began = time.monotonic()
        log.info("stopping because of %s: %s are open", reason, connections)

    def stopped(self, aborted_count: int) -> None:
        """Report the end of a stop. `aborted_count` is the number of Kafka connections that did not end in time."""
        now = time.monotonic()
        cut = f"; {counted(aborted_count, 'Kafka connection')} did not end in time" if aborted_count else ""
        log.info("stopped in %.2f s after running for %s%s", now - self._stop_began, _duration(now - self._began), cut)
        self._handler.close()

    def _report_left_out(self) -> None:
        self._handler.report_left_out()
        asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._report_left_out)


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{counted(days, 'day')} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s" if minutes else f"{left} s"

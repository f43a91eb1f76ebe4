"""Publishes reports to a room, in a thread of its own.

A report replaces an earlier one with the same key that was not sent yet. The number of waiting reports is therefore the
number of keys, however slow the server is. A report that cannot be sent is kept until a newer one replaces it, and the
job never waits for it, except for CLOSE_S_MAX at its end.
"""

import sys
import threading
import time
from collections.abc import Callable

from kwire.client import Client, ClientError, NewEvent, RoomNotFound
from kwire.pipeline.server import Server

ROOM = "kwire.jobs"
RETENTION = {"retention_mode": "hybrid", "retention_hours": 14 * 24, "max_events": 200_000}
INTERVAL_S = 1.0
# The time until the next attempt after a failure.
RETRY_S = 10.0
# A job that has nothing to report says at this interval that it is running.
ALIVE_S = 15.0
REQUEST_S_MAX = 5.0
CLOSE_S_MAX = 5.0
# The API accepts this many events in one request.
EVENTS_PER_REQUEST = 1000


class ReportSender:
    """Sends the newest report of each key, at most once per INTERVAL_S. `alive` makes the report of a quiet job."""

    def __init__(self, server: Server, alive: Callable[[], NewEvent], *, is_shown: bool) -> None:
        self._server = server
        self._alive = alive
        self._is_shown = is_shown
        self._waiting: dict[str, NewEvent] = {}
        self._is_closed = False
        self._has_complained = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, key: str, report: NewEvent) -> None:
        with self._changed:
            # The newest report comes last, so that the end of a job follows the ends of its queries.
            self._waiting.pop(key, None)
            self._waiting[key] = report
            self._changed.notify()

    def close(self) -> None:
        """Send what is waiting, and end the thread. Reports that are not sent within CLOSE_S_MAX are dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        with self._server.client(REQUEST_S_MAX) as client:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed, ALIVE_S)
                    taken, self._waiting = self._waiting, {}
                    is_last = self._is_closed
                events = list(taken.values()) or ([] if is_last else [self._alive()])
                is_sent = not events or self._is_sent(client, events)
                if is_last:
                    return
                if not is_sent:
                    self._keep(taken)
                self._pause(INTERVAL_S if is_sent else RETRY_S)

    def _keep(self, taken: dict[str, NewEvent]) -> None:
        with self._changed:
            self._waiting = {**taken, **self._waiting}

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, deadline - time.monotonic())

    def _is_sent(self, client: Client, events: list[NewEvent]) -> bool:
        try:
            try:
                client.rooms.get(ROOM)
            except RoomNotFound:
                client.rooms.create(ROOM, **RETENTION)
            for first in range(0, len(events), EVENTS_PER_REQUEST):
                client.stream.publish_many(ROOM, events[first : first + EVENTS_PER_REQUEST])
        except ClientError as error:
            self._complain(error)
            return False
        return True

    def _complain(self, error: ClientError) -> None:
        if self._is_shown and not self._has_complained:
            print(f"kwire: the progress is not reported to the room {ROOM}: {error}", file=sys.stderr, flush=True)
        self._has_complained = True

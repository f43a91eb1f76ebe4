"""A room under load: clients that publish through a bridge, and a subscriber that resumes, with their history.

The history checker of the tests (tests/support/history_checks) judges in the end. It knows transactions: here each
event is one of its own, which is committed if the bridge has answered, and of unknown outcome after an error.
"""

import asyncio
import json
import time
from collections.abc import Iterable
from types import TracebackType

from benchmark.processes import ChildFailed
from kwire.client import AsyncClient, ClientError, GapFound
from tests.support.history import (
    Acknowledged,
    Begun,
    EndAsked,
    Ended,
    FinalLog,
    History,
    Isolation,
    Outcome,
    Passed,
    Place,
    Read,
    ReaderStarted,
    Sent,
)

WRITERS = 4
PAUSE_SECONDS = 0.02
CLIENT_SECONDS = 60.0
RETRY_SECONDS = 0.02, 0.2
CATCH_UP_SECONDS = 60.0
READER = "subscriber"
NO_TIMEOUT_SECONDS = 1e9
EVENT_TYPE = "bench"


class RoomLoad:
    """Used as `async with`. The clients stop at its end, and `finish` checks what has become of every event."""

    def __init__(self, url: str, room: str) -> None:
        self.acknowledged_at: list[float] = []
        self.received_at: list[float] = []
        self.uncertain_count = 0
        self.gap_count = 0
        self.history = History()
        self._room = room
        self._place = Place(room, 0)
        self._next_offset = 0
        shortest, longest = RETRY_SECONDS
        self._client = AsyncClient(url, timeout_s=CLIENT_SECONDS, retry_delay_s_min=shortest, retry_delay_s_max=longest)
        self._is_over = False
        self._writers: list[asyncio.Task[None]] = []
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "RoomLoad":
        subscription = await self._client.stream.subscribe(self._room, from_offset=0)
        self.history.note(ReaderStarted(reader=READER, place=self._place, position=0))

        async def read() -> None:
            while True:
                try:
                    event = await subscription.next_event(None)
                except GapFound:
                    self.gap_count += 1
                    continue
                self.received_at.append(time.monotonic())
                self._next_offset = event.offset + 1
                value = str(event.data)
                self.history.note(Read(reader=READER, place=self._place, offset=event.offset, value=value))

        self._reader = asyncio.create_task(read())
        self._writers = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is not None:
            for task in self._writers:
                task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=error is not None)
        if error is not None:
            await self._stop()

    async def _stop(self) -> None:
        assert self._reader is not None
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._client.close()

    async def _write(self, writer: int) -> None:
        number = 0
        while not self._is_over:
            value = f"{writer}-{number}"
            self.history.note_all(
                (
                    Begun(transaction=value, transactional_id=value, incarnation=1, timeout_s=NO_TIMEOUT_SECONDS),
                    Sent(transaction=value, place=self._place, value=value),
                    EndAsked(transaction=value, is_commit=True),
                )
            )
            try:
                stored = await self._client.stream.publish(self._room, EVENT_TYPE, value)
            except ClientError:
                self.uncertain_count += 1
                self.history.note(Ended(transaction=value, outcome=Outcome.UNKNOWN))
            else:
                self.acknowledged_at.append(time.monotonic())
                self.history.note_all(
                    (
                        Acknowledged(place=self._place, value=value, offset=stored.offset),
                        Ended(transaction=value, outcome=Outcome.COMMITTED),
                    )
                )
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def finish(self, committed: Iterable[tuple[int, bytes]], all_records: Iterable[tuple[int, bytes]]) -> None:
        """Wait until the subscriber has everything, and stop. A stock client has read the records."""
        logs = []
        for isolation, found in ((Isolation.COMMITTED, committed), (Isolation.UNCOMMITTED, all_records)):
            records = [(offset, str(json.loads(value))) for offset, value in found]
            end = records[-1][0] + 1 if records else 0
            logs.append(FinalLog(place=self._place, isolation=isolation, records=records, end_offset=end))
        try:
            deadline = time.monotonic() + CATCH_UP_SECONDS
            while self._next_offset < logs[0].end_offset:
                if time.monotonic() > deadline:
                    raise ChildFailed(f"the subscriber is at {self._next_offset} of {logs[0].end_offset}")
                await asyncio.sleep(PAUSE_SECONDS)
            self.history.note(Passed(reader=READER, place=self._place, position=self._next_offset))
        finally:
            await self._stop()
        self.history.note_all(logs)

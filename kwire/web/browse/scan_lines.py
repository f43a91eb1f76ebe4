"""The lines of a scan: JSON in NDJSON or Server-Sent Events, and the pace at which a scan may continue.

In NDJSON a line is an object with one member, whose name is the kind of the line: `record`, `progress`, `unreadable` or
`end`. In Server-Sent Events the kind is the name of the event, and its data is the member.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from kwire.access.quotas.client_quota import MS
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.quotas import Quotas
from kwire.concurrency.chunking import yield_to_loop
from kwire.streams.log import NotReady
from kwire.web.answers.errors import ErrorFacts
from kwire.web.browse.record_cursor import ScanCounts, UnreadableRange
from kwire.web.browse.record_json import BrowsedRecord
from kwire.web.requests.request_ids import common_headers
from kwire.web.route import EVENT_STREAM, NDJSON

# The maximum time between two lines while records are scanned, and while a stream waits for new records.
PROGRESS_SECONDS = 0.25
IDLE_PROGRESS_SECONDS = 5.0
# Lines are sent when they have this size, or are this old.
SENT_BYTES = 32 * 1024
SENT_SECONDS = 0.05
# A progress line names at most this many partitions.
PROGRESS_PARTITIONS_MAX = 100

_encode = msgspec.json.Encoder().encode

EndReason = Literal["end", "limit", "deleted", "stopped", "forbidden", "error"]


class Progress(msgspec.Struct, kw_only=True):
    scanned: Annotated[int, msgspec.Meta(description="Records that were examined.")]
    matched: Annotated[int, msgspec.Meta(description="Records that passed the filters.")]
    bytes: Annotated[int, msgspec.Meta(description="Bytes of the log that were examined.")]
    unsearched: Annotated[int, msgspec.Meta(description="Records whose values are too large for the filter `path`.")]
    left: Annotated[int, msgspec.Meta(description="Offsets that were not examined yet.")]
    partitions: Annotated[
        dict[str, int],
        msgspec.Meta(description="The offset that is examined next, for partitions that have changed, at most 100."),
    ]


class Unreadable(msgspec.Struct, kw_only=True):
    """Offsets that cannot be read. The scan continues after them."""

    partition: int
    from_offset: int
    to_offset: Annotated[int, msgspec.Meta(description="The first offset after the range.")]
    reason: str


class End(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The last line."""

    reason: Annotated[
        EndReason,
        msgspec.Meta(
            description="`end`: all records were examined. `limit`: `limit` records were sent. `deleted`: the "
            "topic was deleted. `stopped`: the server stops. `forbidden`: the client has lost its right or its login."
        ),
    ]
    next: Annotated[
        dict[str, int],
        msgspec.Meta(description="Where another request continues, by partition: its parameter `next`."),
    ]
    error: ErrorFacts | None = None


class RecordLine(msgspec.Struct, kw_only=True):
    record: BrowsedRecord


class ProgressLine(msgspec.Struct, kw_only=True):
    progress: Progress


class UnreadableLine(msgspec.Struct, kw_only=True):
    unreadable: Unreadable


class EndLine(msgspec.Struct, kw_only=True):
    end: End


class ScanWriter:
    """Writes the lines of one scan. It is the `Pacer` of the scan: a scan ends when the client has disconnected."""

    def __init__(
        self,
        request: web.Request,
        counts: ScanCounts,
        quotas: Quotas,
        user: str,
        *,
        is_sse: bool,
        positions: Callable[[], tuple[int, dict[int, int]]],
        release: Callable[[], None],
    ) -> None:
        """`positions` returns the offsets that are left and the next offset of each partition. `release` releases the
        memory of the logs: it is called if the client is slow."""
        self._request = request
        self._counts = counts
        self._quotas = quotas
        self._user = user
        self._is_sse = is_sse
        self._positions = positions
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._sent_at = self._progress_at = self._loop.time()
        self._shown_positions: dict[int, int] = {}
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **common_headers(request)}
        self.response = web.StreamResponse(headers=headers)
        self.response.content_type = EVENT_STREAM if is_sse else NDJSON

    async def begin(self) -> None:
        await self.response.prepare(self._request)

    # --- lines

    async def record(self, record: BrowsedRecord) -> None:
        self._counts.matched += 1
        self._add("record", record)
        if self._lines_bytes >= SENT_BYTES:
            await self.flush()

    async def end(self, end: End) -> None:
        self._add_gaps()
        self._add_progress()
        self._add("end", end)
        await self.flush()
        await self.response.write_eof()

    async def report_progress(self) -> None:
        """Send a progress line now."""
        self._add_progress()
        await self.flush()

    async def flush(self) -> None:
        """Send the lines. Returns when the client can receive more."""
        self._sent_at = self._loop.time()
        if not self._lines:
            return
        data = b"".join(self._lines)
        self._lines.clear()
        self._lines_bytes = 0
        transport = self._request.transport
        if (
            transport is not None
            and isinstance(transport, asyncio.WriteTransport)
            and transport.get_write_buffer_size()
        ):
            self._release()
        await self.response.write(data)
        await self._charge(len(data))

    # --- the pace of the scan

    async def pause(self) -> None:
        await yield_to_loop()
        await self.keep_up(PROGRESS_SECONDS)

    async def wait(self, needed: NotReady) -> None:
        waiting = asyncio.ensure_future(needed.wait())
        try:
            while not (await asyncio.wait((waiting,), timeout=PROGRESS_SECONDS))[0]:
                await self.keep_up(PROGRESS_SECONDS)
        except BaseException:
            waiting.cancel()
            raise
        waiting.result()

    async def keep_up(self, progress_seconds: float) -> None:
        """Send a progress line if it is due, and lines that have waited. Raises ConnectionResetError if the client has
        disconnected."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        now = self._loop.time()
        if self._counts.gaps:
            self._add_gaps()
        if now - self._progress_at >= progress_seconds:
            await self.report_progress()
        elif now - self._sent_at >= SENT_SECONDS and self._lines:
            await self.flush()

    def _add(self, kind: str, value: object) -> None:
        data = _encode(value)
        if self._is_sse:
            line = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
        else:
            line = b'{"%b":%b}\n' % (kind.encode(), data)
        self._lines.append(line)
        self._lines_bytes += len(line)

    def _add_progress(self) -> None:
        self._progress_at = self._loop.time()
        left, positions = self._positions()
        changed: dict[str, int] = {}
        for partition, offset in positions.items():
            if self._shown_positions.get(partition) != offset and len(changed) < PROGRESS_PARTITIONS_MAX:
                self._shown_positions[partition] = offset
                changed[str(partition)] = offset
        counts = self._counts
        self._add(
            "progress",
            Progress(
                scanned=counts.scanned,
                matched=counts.matched,
                bytes=counts.scanned_bytes,
                unsearched=counts.unsearched,
                left=left,
                partitions=changed,
            ),
        )

    def _add_gaps(self) -> None:
        for gap in self._counts.gaps:
            self._add("unreadable", _shown_gap(gap))
        self._counts.gaps.clear()

    async def _charge(self, size_bytes: int) -> None:
        """Charge the quota of the client. A client that has exceeded it waits."""
        client = self._quotas.client(self._user, None)
        if client is None:
            return
        client.add(QuotaKind.CONSUME, size_bytes)
        while (exceeded := client.exceeded(QuotaKind.CONSUME)) is not None:
            self._release()
            await asyncio.sleep(min(PROGRESS_SECONDS, exceeded.retry_after_ms / MS))
            transport = self._request.transport
            if transport is None or transport.is_closing():
                raise ConnectionResetError("the client has disconnected")


def _shown_gap(gap: UnreadableRange) -> Unreadable:
    return Unreadable(**gap._asdict())


def error_facts(shown: dict[str, Any]) -> ErrorFacts:
    return ErrorFacts(code=shown["code"], message=shown["message"])

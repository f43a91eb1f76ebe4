"""Writers and readers of remote logs that note everything, for tests with faults, and what must hold in the end."""

import asyncio

from kwire.errors import KafkaError
from kwire.streams.log import NotReady, StreamLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.partition_queue import UnknownOutcome
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from tests.support.remote_worlds import remote_logs, until
from tests.support.stream_worlds import NOW_MS, committed_records, read_values


class Writer:
    """Appends numbered records, a few of them without waiting. `appended` has their offsets, `failed` their errors."""

    def __init__(self, log: StreamLog, in_flight_max: int = 20) -> None:
        self._log = log
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self.sent = 0
        self.appended: dict[int, int] = {}
        self.failed: dict[int, KafkaError] = {}

    async def write(self, count: int) -> None:
        for _ in range(count):
            await until(lambda: self._in_flight < self._in_flight_max)
            self._send()
            await asyncio.sleep(0)

    async def finish(self) -> None:
        await until(lambda: not self._in_flight)

    def _send(self) -> None:
        number, self.sent = self.sent, self.sent + 1
        self._in_flight += 1

        def complete(outcome: int | KafkaError) -> None:
            self._in_flight -= 1
            if isinstance(outcome, KafkaError):
                self.failed[number] = outcome
            else:
                assert number not in self.appended
                self.appended[number] = outcome

        body = encode_record_body(None, b"%d" % number, 0, b"")
        self._log.append(*build_batch_from_bodies([body], NOW_MS), complete)


class Subscriber:
    """Follows a log as a subscription does: it reads when it is called, and waits when it has to."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._rose = asyncio.Event()
        self.next_offset = 0
        self.records: list[tuple[int, int]] = []
        log.watch(self._wake)

    def _wake(self, log: StreamLog) -> None:
        self._rose.set()

    async def run(self) -> None:
        waits = 0
        while True:
            self._rose.clear()
            try:
                read = self._log.read(self.next_offset, 64 * 1024, waits)
                if isinstance(read, NotReady):
                    waits += 1
                    await read.wait()
                    continue
            except KafkaError:
                # The cluster was out of reach for too long: a subscription would tell its client, which returns.
                waits = 0
                await asyncio.sleep(0.05)
                continue
            waits = 0
            if not read.records and self._log.committed_end <= self.next_offset:
                await self._rose.wait()
                continue
            self.records += [
                (offset, int(value or b"-1")) for offset, value in committed_records(read) if offset >= self.next_offset
            ]
            self.next_offset = read.next_offset


async def check_nothing_is_lost(bootstrap: str, topic: str, writer: Writer) -> list[tuple[int, int]]:
    """Read the log with another client. What was acknowledged is there once, at its offset and in order."""
    with remote_logs(bootstrap) as logs:
        log = await _opened(logs, topic)
        stored = [(offset, int(value or b"-1")) for offset, value in await read_values(log)]
        await logs.close()
    numbers = [number for _, number in stored]
    assert numbers == sorted(set(numbers)), "records are stored twice or in another order"
    assert set(writer.appended.items()) <= {(number, offset) for offset, number in stored}
    missing = set(range(writer.sent)) - set(numbers)
    assert missing <= set(writer.failed)
    not_stored = {number for number, error in writer.failed.items() if not isinstance(error, UnknownOutcome)}
    assert not not_stored & set(numbers), "records are stored although their append said that they are not"
    return stored


async def _opened(logs: RemoteLogs, topic: str) -> StreamLog:
    log = await logs.open(topic)
    await log.ready()
    return log

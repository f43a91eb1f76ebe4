"""Measures end-to-end latency: a record is produced while a long poll for it waits on a second connection.

It is a separate program (`python -m benchmark.prober --help`). Kafka's EndToEndLatency rounds percentiles to
milliseconds and includes the time of its Java client. With two raw sockets, only the server and the kernel are
measured. The gap before each record gives the long poll time to arrive, so that the wake-up of a waiting fetch is
measured.
"""

import argparse
import gc
import json
import select
import sys
import time
from array import array
from dataclasses import asdict, dataclass

from benchmark.histogram import Latencies
from benchmark.wire import FetchCall, ProduceCall, WireError, connect, read_frame, record_batch

SILENCE_SECONDS = 20
LONG_POLL_MS = 15_000
COUNT_MAX = 10_000_000  # Limits the memory for samples: 16 bytes per record.


@dataclass(frozen=True)
class Probes:
    records: int
    end_to_end: str
    acknowledged: str


class Prober:
    def __init__(self, address: tuple[str, int], topic: str, value_size: int) -> None:
        self._produce = ProduceCall.build(topic, record_batch(b"x" * value_size, time.time_ns() // 1_000_000))
        self._fetch = FetchCall.build(topic, LONG_POLL_MS)
        self._writer = connect(address, SILENCE_SECONDS)
        self._reader = connect(address, SILENCE_SECONDS)
        self._poll = select.poll()
        for connection in (self._writer, self._reader):
            self._poll.register(connection, select.POLLIN)
        self._writer.sendall(self._produce.frame)
        self._next_offset = self._produce.base_offset(read_frame(self._writer)) + 1
        self.end_to_end_ns = array("q")
        self.acknowledged_ns = array("q")

    def park(self) -> None:
        """Send a Fetch for the next record, before it exists."""
        self._reader.sendall(self._fetch.frame(self._next_offset))

    def probe(self) -> None:
        """Produce the record, and measure the time until each of the two responses, in any order."""
        sent = time.perf_counter_ns()
        self._writer.sendall(self._produce.frame)
        waiting = {self._writer.fileno(), self._reader.fileno()}
        while waiting:
            ready = self._poll.poll(SILENCE_SECONDS * 1000)
            if not ready:
                raise WireError(f"no answer for {SILENCE_SECONDS} s")
            for descriptor, _ in ready:
                self._receive(descriptor, sent)
                waiting.discard(descriptor)
        self._next_offset += 1

    def _receive(self, descriptor: int, sent: int) -> None:
        if descriptor == self._reader.fileno():
            reply = read_frame(self._reader)
            self.end_to_end_ns.append(time.perf_counter_ns() - sent)
            self._fetch.check(reply, self._next_offset)
            return
        reply = read_frame(self._writer)
        self.acknowledged_ns.append(time.perf_counter_ns() - sent)
        self._produce.base_offset(reply)

    def results(self) -> Probes:
        end_to_end, acknowledged = Latencies.of(self.end_to_end_ns), Latencies.of(self.acknowledged_ns)
        return Probes(len(self.end_to_end_ns), end_to_end.encode(), acknowledged.encode())

    def close(self) -> None:
        self._writer.close()
        self._reader.close()


def probe_until(prober: Prober, count: int, gap_seconds: float, stop_with_stdin: bool) -> None:
    watched = [sys.stdin] if stop_with_stdin else []
    gc.disable()
    for _ in range(count):
        prober.park()
        stop, _, _ = select.select(watched, [], [], gap_seconds)
        if stop:
            return
        prober.probe()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.prober", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=COUNT_MAX)
    parser.add_argument("--gap-ms", type=float, default=0.5)
    parser.add_argument("--value-size", type=int, default=100)
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input is closed")
    arguments = parser.parse_args()
    if not 0 < arguments.count <= COUNT_MAX:
        parser.error(f"at most {COUNT_MAX} records")
    prober = Prober((arguments.host, arguments.port), arguments.topic, arguments.value_size)
    probe_until(prober, arguments.count, arguments.gap_ms / 1000, arguments.stop_with_stdin)
    prober.close()
    json.dump(asdict(prober.results()), sys.stdout)


if __name__ == "__main__":
    main()

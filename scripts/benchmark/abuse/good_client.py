"""The good client, a separate program: `python -m benchmark.abuse.good_client --help`.

Every ten milliseconds it produces a small record and fetches it, and publishes a small event over HTTP. If a request
takes longer than this, the next ones are late. The requests that should have started meanwhile are also counted, each
with the time that it would have waited (correction of coordinated omission).
"""

import argparse
import json
import select
import socket
import sys
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.abuse.http import JSON, ask, events_path, post
from benchmark.histogram import Latencies
from benchmark.servers import LOOPBACK
from benchmark.wire import FetchCall, ProduceCall, WireError, connect, read_frame, record_batch

# The client has its own loopback address, so that limits per address apply only to the attacker.
ADDRESS = "127.0.0.2"
TOPIC, LARGE_TOPIC, ROOM = "good", "good-large", "good-room"
VALUE_BYTES = 100
INTERVAL_SECONDS = 0.01
LARGE_INTERVAL_SECONDS = 0.2
SECONDS_MAX = 900.0
RECONNECT_SECONDS = 0.1
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Rounds:
    """Counts, and latencies as encoded histograms. `large` is "" if no large requests were sent."""

    rounds: int
    failed: int
    kafka: str
    http: str
    large: str


class Part:
    """Sends one kind of request on one connection. After a failure, it opens a new connection."""

    def __init__(self, port: int, call: Callable[[socket.socket], None], interval_seconds: float) -> None:
        self._port = port
        self._call = call
        self._interval_ns = int(interval_seconds * 1e9)
        self._connection: socket.socket | None = None
        self._taken_ns = array("q")
        self.count = self.failed = 0

    def run_until(self, ended: threading.Event) -> None:
        started = time.perf_counter_ns()
        while not ended.wait(max(0.0, (self._interval_ns - (time.perf_counter_ns() - started)) / 1e9)):
            started = time.perf_counter_ns()
            self.run()

    def run(self) -> None:
        self.count += 1
        started = time.perf_counter_ns()
        try:
            if self._connection is None:
                self._connection = connect((LOOPBACK, self._port), ANSWER_SECONDS_MAX, ADDRESS)
            self._call(self._connection)
        except (OSError, WireError):
            self.failed += 1
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            time.sleep(RECONNECT_SECONDS)
        taken = time.perf_counter_ns() - started
        while taken > 0:
            self._taken_ns.append(taken)
            taken -= self._interval_ns

    def forget(self) -> None:
        """Discard the results so far, which belong to the warm-up."""
        del self._taken_ns[:]
        self.count = self.failed = 0

    def encoded(self) -> str:
        return Latencies.of(self._taken_ns).encode() if self._taken_ns else ""


def produce_and_fetch() -> Callable[[socket.socket], None]:
    produce = ProduceCall.build(TOPIC, record_batch(b"x" * VALUE_BYTES, time.time_ns() // 1_000_000))
    fetch = FetchCall.build(TOPIC, 0)

    def call(connection: socket.socket) -> None:
        connection.sendall(produce.frame)
        offset = produce.base_offset(read_frame(connection))
        connection.sendall(fetch.frame(offset))
        fetch.check(read_frame(connection), offset)

    return call


def produce_large(size: int) -> Callable[[socket.socket], None]:
    produce = ProduceCall.build(LARGE_TOPIC, record_batch(b"x" * size, time.time_ns() // 1_000_000))

    def call(connection: socket.socket) -> None:
        connection.sendall(produce.frame)
        produce.check(read_frame(connection))

    return call


def publish() -> Callable[[socket.socket], None]:
    request = post(events_path(ROOM), b'{"event_type":"good","data":"' + b"x" * VALUE_BYTES + b'"}', JSON)

    def call(connection: socket.socket) -> None:
        status = ask(connection, request)
        if status >= 300:
            raise WireError(f"an event was answered with status {status}")

    return call


def run_parts(parts: list[Part], seconds: float, stop_with_stdin: bool) -> None:
    """Run each part in its own thread, so that a waiting part does not delay the others."""
    ended = threading.Event()
    threads = [threading.Thread(target=part.run_until, args=(ended,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    if stop_with_stdin:
        select.select([sys.stdin], [], [], seconds)
    else:
        time.sleep(seconds)
    ended.set()
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.abuse.good_client", description=__doc__.splitlines()[0])
    parser.add_argument("--kafka-port", type=int, required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=SECONDS_MAX)
    parser.add_argument("--large-bytes", type=int, default=0, help="size of a larger Produce, five a second")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input is closed")
    given = parser.parse_args()
    kafka = Part(given.kafka_port, produce_and_fetch(), INTERVAL_SECONDS)
    http = Part(given.http_port, publish(), INTERVAL_SECONDS)
    large = None
    if given.large_bytes:
        large = Part(given.kafka_port, produce_large(given.large_bytes), LARGE_INTERVAL_SECONDS)
    parts = [kafka, http, *([large] if large is not None else [])]
    run_parts(parts, WARM_UP_SECONDS, stop_with_stdin=False)  # The warm-up: connects, and creates the room.
    for part in parts:
        part.forget()
    if given.stop_with_stdin:
        print("ready", flush=True)
    run_parts(parts, min(given.seconds, SECONDS_MAX), given.stop_with_stdin)
    failed = sum(part.failed for part in parts)
    result = Rounds(kafka.count, failed, kafka.encoded(), http.encoded(), large.encoded() if large is not None else "")
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()

"""The good client, a separate program: `python -m benchmark.abuse.good_client --help`.

Every ten milliseconds it produces a small record and fetches it, and publishes a small event over HTTP. If a request
takes longer than this, the next ones are late. The requests that should have started meanwhile are also counted, each
with the time that it would have waited (correction of coordinated omission).

On a server with logins, it logs in, and opens further connections only to log in on them: by SCRAM, by PLAIN, and by
PLAIN as a user that has not logged in before, whose password the server has to hash.
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
from itertools import cycle
from pathlib import Path

from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.abuse.http import JSON, ask, events_path, post
from benchmark.access.client_config import User, basic_authorization, read_user
from benchmark.access.first_users import first_user
from benchmark.access.login import log_in_plain, log_in_scram
from benchmark.histogram import Latencies
from benchmark.servers import LOOPBACK
from benchmark.wire import FetchCall, ProduceCall, WireError, connect, read_frame, record_batch

# The client has its own loopback address, so that limits per address apply only to the attacker.
ADDRESS = "127.0.0.2"
TOPIC, LARGE_TOPIC, ROOM = "good", "good-large", "good-room"
NAME_PREFIX = "good"  # Of the topics and the room.
VALUE_BYTES = 100
INTERVAL_SECONDS = 0.01
LARGE_INTERVAL_SECONDS = 0.2
LOGIN_INTERVAL_SECONDS = 0.1
FIRST_LOGIN_INTERVAL_SECONDS = 0.5
FIRST_USERS = 256  # Enough for two minutes. Later logins are not first ones.
SECONDS_MAX = 900.0
RECONNECT_SECONDS = 0.1
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Rounds:
    """Counts, and latencies as encoded histograms. Those of requests that were not sent are ""."""

    rounds: int
    failed: int
    kafka: str
    http: str
    large: str = ""
    scram: str = ""
    plain: str = ""
    first: str = ""


PARTS = ("kafka", "http", "large", "scram", "plain", "first")
Call = Callable[[socket.socket], None]


class Part:
    """Sends one kind of request on one connection. After a failure, it opens a new connection.

    `log_in` prepares a new connection. If `is_anew` is true, each request has its own connection.
    """

    def __init__(
        self, port: int, call: Call, interval_seconds: float, log_in: Call | None = None, is_anew: bool = False
    ) -> None:
        self._port = port
        self._log_in = log_in
        self._is_anew = is_anew
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
                if self._log_in is not None:
                    self._log_in(self._connection)
            self._call(self._connection)
            if self._is_anew:
                self._connection.close()
                self._connection = None
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


def produce_and_fetch() -> Call:
    produce = ProduceCall.build(TOPIC, record_batch(b"x" * VALUE_BYTES, time.time_ns() // 1_000_000))
    fetch = FetchCall.build(TOPIC, 0)

    def call(connection: socket.socket) -> None:
        connection.sendall(produce.frame)
        offset = produce.base_offset(read_frame(connection))
        connection.sendall(fetch.frame(offset))
        fetch.check(read_frame(connection), offset)

    return call


def produce_large(size: int) -> Call:
    produce = ProduceCall.build(LARGE_TOPIC, record_batch(b"x" * size, time.time_ns() // 1_000_000))

    def call(connection: socket.socket) -> None:
        connection.sendall(produce.frame)
        produce.check(read_frame(connection))

    return call


def publish(user: User | None) -> Call:
    event = b'{"event_type":"good","data":"' + b"x" * VALUE_BYTES + b'"}'
    headers = {} if user is None else basic_authorization(user)
    request = post(events_path(ROOM), event, JSON, *(f"{name}: {value}" for name, value in headers.items()))

    def call(connection: socket.socket) -> None:
        status = ask(connection, request)
        if status >= 300:
            raise WireError(f"an event was answered with status {status}")

    return call


def first_logins(first: int) -> Call:
    """Return a call that logs in as another user every time."""
    numbers = cycle(range(first, first + FIRST_USERS))
    return lambda connection: log_in_plain(connection, first_user(next(numbers)))


def make_parts(given: argparse.Namespace) -> dict[str, Part]:
    port = given.kafka_port
    user = None if given.command_config is None else read_user(given.command_config)
    log_in = None if user is None else lambda connection: log_in_scram(connection, user)
    parts = {
        "kafka": Part(port, produce_and_fetch(), INTERVAL_SECONDS, log_in),
        "http": Part(given.http_port, publish(user), INTERVAL_SECONDS),
    }
    if given.large_bytes:
        parts["large"] = Part(port, produce_large(given.large_bytes), LARGE_INTERVAL_SECONDS, log_in)
    if user is not None and log_in is not None:
        logins = {
            "scram": (log_in, LOGIN_INTERVAL_SECONDS),
            "plain": (lambda connection: log_in_plain(connection, user), LOGIN_INTERVAL_SECONDS),
            "first": (first_logins(given.first_user), FIRST_LOGIN_INTERVAL_SECONDS),
        }
        parts |= {name: Part(port, call, interval, is_anew=True) for name, (call, interval) in logins.items()}
    return parts


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
    parser.add_argument("--command-config", type=Path, help="properties file of a user; without it, no login")
    parser.add_argument("--first-user", type=int, default=0, help="number of the first user that logs in first")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input is closed")
    given = parser.parse_args()
    by_name = make_parts(given)
    parts = list(by_name.values())
    run_parts(parts, WARM_UP_SECONDS, stop_with_stdin=False)  # The warm-up: connects, and creates the room.
    for part in parts:
        part.forget()
    if given.stop_with_stdin:
        print("ready", flush=True)
    run_parts(parts, min(given.seconds, SECONDS_MAX), given.stop_with_stdin)
    failed = sum(part.failed for part in parts)
    encoded = {name: part.encoded() for name, part in by_name.items()}
    result = Rounds(by_name["kafka"].count, failed, **encoded)
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()

"""Sends small requests as fast as the server answers: N connections, each with one 100-byte Produce request in flight.

It is a separate program (`python -m benchmark.loadgen --help`), so that no other code of the benchmark runs in its
process. It has one epoll loop, and its frames are built before the measurement. With a server that only sends a fixed
answer, it reaches 75,000 to 90,000 requests per second with 8 connections, and more than 100,000 with 32, on two cores.
It reports its own CPU time, which shows whether it was the bottleneck.
"""

import argparse
import gc
import json
import select
import socket
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, repeat
from pathlib import Path

from benchmark.access.client_config import User, read_user
from benchmark.access.login import log_in_scram
from benchmark.histogram import Latencies
from benchmark.wire import ProduceCall, RepeatedCall, WireError, connect, read_frame, record_batch

SILENCE_SECONDS = 10
SECONDS_MAX = 600  # Limits the memory for samples: 8 bytes per request.
CONNECTIONS_MAX = 1000
TOPICS_MAX = 10_000
RECEIVE_BYTES = 512
NO_ERROR = b"\0\0"


@dataclass(frozen=True)
class Load:
    requests: int
    seconds: float
    own_cpu_seconds: float
    latencies: str


def topic_name(prefix: str, number: int) -> str:
    """Return a topic name. All names have the same length, so that all responses have the same size."""
    return f"{prefix}-{number:06d}"


def generate(
    address: tuple[str, int],
    topics: Sequence[str],
    connections: int,
    seconds: float,
    value_size: int,
    user: User | None = None,
) -> Load:
    """Produce to the topics in turn. Their names must have the same length."""
    batch = record_batch(b"x" * value_size, time.time_ns() // 1_000_000)
    calls = [ProduceCall.build(topic, batch) for topic in topics]
    return drive_for(address, calls, connections, seconds, user=user)


def drive_for(
    address: tuple[str, int],
    calls: Sequence[RepeatedCall],
    connections: int,
    seconds: float,
    *,
    has_own_calls: bool = False,
    user: User | None = None,
) -> Load:
    """Send the calls in turn, each on the next free connection. All responses must have the same size.

    If `has_own_calls` is true, each connection repeats one call, as if each were a different client. If there is a
    `user`, each connection logs in before the measurement.
    """
    frames = [call.frame for call in calls]
    all_in_turn = cycle(frames)
    frames_by_connection = [repeat(frames[one]) if has_own_calls else all_in_turn for one in range(connections)]
    sockets = [connect(address, SILENCE_SECONDS) for _ in range(connections)]
    if user is not None:
        for connection in sockets:
            log_in_scram(connection, user)
    samples_ns = array("q")
    gc.disable()
    cpu_before, started = time.process_time(), time.perf_counter()
    drive(calls[0], frames_by_connection, sockets, time.perf_counter_ns() + int(seconds * 1e9), samples_ns)
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    for connection in sockets:
        connection.close()
    return Load(len(samples_ns), elapsed, cpu, Latencies.of(samples_ns).encode())


def drive(
    call: RepeatedCall,
    frames_by_connection: Sequence[Iterator[bytes]],
    sockets: list[socket.socket],
    end_ns: int,
    samples_ns: "array[int]",
) -> None:
    """The measured loop. All names are local, and responses are only compared, so that the server is the bottleneck."""
    reply_size, error_at, error_end = call.reply_size, call.error_at, call.error_at + 2
    clock, record, epoll = time.perf_counter_ns, samples_ns.append, select.epoll()
    doors = {
        connection.fileno(): (connection.recv, connection.send, frames, connection)
        for connection, frames in zip(sockets, frames_by_connection, strict=True)
    }
    sent_ns = {}
    for descriptor, (_, send, frames, _) in doors.items():
        epoll.register(descriptor, select.EPOLLIN)
        sent_ns[descriptor] = clock()
        send(next(frames))
    now_ns = 0
    while now_ns < end_ns:
        ready = epoll.poll(SILENCE_SECONDS)
        if not ready:
            raise WireError(f"no answer for {SILENCE_SECONDS} s")
        for descriptor, _ in ready:
            receive, send, frames, connection = doors[descriptor]
            reply = receive(RECEIVE_BYTES)
            now_ns = clock()
            if len(reply) != reply_size or reply[error_at:error_end] != NO_ERROR:
                call.check(read_frame(connection, reply))
                now_ns = clock()
            record(now_ns - sent_ns[descriptor])
            sent_ns[descriptor] = now_ns
            send(next(frames))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.loadgen", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--topics", type=int, default=0, help="number of topics (TOPIC-000000 …); 0: only TOPIC")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--value-size", type=int, default=100)
    parser.add_argument("--command-config", type=Path, help="properties file of a user; without it, no login")
    arguments = parser.parse_args()
    if not 0 < arguments.seconds <= SECONDS_MAX or not 0 < arguments.connections <= CONNECTIONS_MAX:
        parser.error(f"at most {SECONDS_MAX} seconds and {CONNECTIONS_MAX} connections")
    if not 0 <= arguments.topics <= TOPICS_MAX:
        parser.error(f"at most {TOPICS_MAX} topics")
    address = (arguments.host, arguments.port)
    topics = [topic_name(arguments.topic, number) for number in range(arguments.topics)] or [arguments.topic]
    user = None if arguments.command_config is None else read_user(arguments.command_config)
    load = generate(address, topics, arguments.connections, arguments.seconds, arguments.value_size, user)
    json.dump(asdict(load), sys.stdout)


if __name__ == "__main__":
    main()

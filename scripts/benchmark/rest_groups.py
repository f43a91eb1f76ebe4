"""Measures consumer groups over HTTP: the latency of commits, and of rebalances when members join and leave.

`PYTHONPATH=scripts .venv/bin/python -m benchmark.rest_groups` starts a server in a temporary directory, prints one line
of figures for each work, and stops the server. The functions have an HTTP port as an argument, so that other programs
can use them.

A rebalance lasts from the request that causes it until all members have received the state `stable`: from their
streams, or without streams, in the response to a request for their assignment.
"""

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.histogram import Latencies
from benchmark.servers import LOOPBACK, Kwire, RunningServer

TOPIC = "shared"
READ_BYTES = 65_536
STEP_TIMEOUT_SECONDS = 30.0
DEFAULT_COMMITS = 5_000
DEFAULT_ROUNDS = 20
DEFAULT_MEMBERS = (3, 30)
PARTITIONS_PER_MEMBER = 4


class Connection:
    """A persistent HTTP connection without a client library, so that no time of a library is measured."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=STEP_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        return self.send(request_bytes(method, path, body))

    def send(self, request: bytes) -> dict[str, object]:
        self._socket.sendall(request)
        data = b""
        while (head_end := data.find(b"\r\n\r\n")) < 0:
            data += self._received()
        head = data[:head_end].lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(data) < head_end + 4 + size:
            data += self._received()
        answer: dict[str, object] = json.loads(data[head_end + 4 :])
        status = int(head.split(b" ", 2)[1])
        if status >= 300:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def _received(self) -> bytes:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data


def request_bytes(method: str, path: str, body: object = None) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else "Content-Type: application/json\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def make_group(connection: Connection, group: str, partition_count: int, topic: str = TOPIC) -> None:
    connection.ask("POST", f"/topics/{topic}", {"num_partitions": partition_count})
    connection.ask("POST", f"/consumer-groups/{group}", {"topic": topic, "strategy": "sticky"})


def measure_commits(port: int, count: int, group: str = "commits") -> dict[str, float]:
    """Measure commits of one client, which waits for each response before the next commit."""
    connection = Connection(port)
    make_group(connection, group, 1, f"{TOPIC}-{group}")
    path = f"/consumer-groups/{group}/offsets/commit"
    requests = [request_bytes("POST", path, {"partition_id": 0, "offset": number}) for number in range(count)]
    samples_ns = []
    for request in requests:
        begin = time.perf_counter_ns()
        connection.send(request)
        samples_ns.append(time.perf_counter_ns() - begin)
    connection.close()
    return Latencies.of(samples_ns).figures()


def measure_polled_rebalances(port: int, member_count: int, rounds: int) -> dict[str, float]:
    """Measure rebalances of members that poll for their assignment. In each round one member joins and one leaves."""
    connection, group = Connection(port), f"polled-{member_count}"
    make_group(connection, group, member_count * PARTITIONS_PER_MEMBER, f"{TOPIC}-{group}")
    members = [
        str(connection.ask("POST", f"/consumer-groups/{group}/join", {})["member_id"]) for _ in range(member_count)
    ]
    _settle(connection, group, members)
    samples_ns = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        members.append(str(connection.ask("POST", f"/consumer-groups/{group}/join", {})["member_id"]))
        _settle(connection, group, members)
        samples_ns.append(time.perf_counter_ns() - begin)
        begin = time.perf_counter_ns()
        connection.ask("DELETE", f"/consumer-groups/{group}/members/{members.pop(0)}/leave")
        _settle(connection, group, members)
        samples_ns.append(time.perf_counter_ns() - begin)
    connection.close()
    return Latencies.of(samples_ns).figures()


def _settle(connection: Connection, group: str, members: Sequence[str]) -> None:
    """Poll the assignment of all members until all of them are stable."""
    deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
    waiting = list(members)
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(waiting)} members of {group} still wait")
        told = {one: connection.ask("GET", f"/consumer-groups/{group}/members/{one}/assignment") for one in members}
        waiting = [one for one in members if told[one]["state"] != "stable"]


class MemberStream:
    """A member with an open stream. `generation` is from the last message: -1 if its state was not `stable`."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.generation = -1
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, port: int, group: str, heard: asyncio.Event) -> None:
        reader, self._writer = await asyncio.open_connection(LOOPBACK, port)
        path = f"/consumer-groups/{group}/members/{self.member_id}/stream"
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self._task = asyncio.get_running_loop().create_task(self._listen(reader, heard))

    async def _listen(self, reader: asyncio.StreamReader, heard: asyncio.Event) -> None:
        while line := await reader.readline():
            if line.startswith(b'{"control":"assignment"'):
                told = json.loads(line)
                self.generation = told["generation"] if told["state"] == "stable" else -1
                heard.set()

    def close(self) -> None:
        if self._task is not None and self._writer is not None:
            self._task.cancel()
            self._writer.close()


async def measure_streamed_rebalances(port: int, member_count: int, rounds: int) -> dict[str, float]:
    """Measure rebalances of members with open streams. In each round one member joins and one leaves."""
    connection, group = Connection(port), f"streamed-{member_count}"
    make_group(connection, group, member_count * PARTITIONS_PER_MEMBER, f"{TOPIC}-{group}")
    heard = asyncio.Event()
    members: list[MemberStream] = []

    async def come() -> None:
        members.append(MemberStream(str(connection.ask("POST", f"/consumer-groups/{group}/join", {})["member_id"])))
        await members[-1].open(port, group, heard)

    async def settle() -> int:
        """Wait until all members have the same generation. Return the time at which the last one received it."""
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while members[0].generation < 0 or len({one.generation for one in members}) > 1:
                heard.clear()
                await heard.wait()
        return time.perf_counter_ns()

    for _ in range(member_count):
        await come()
    await settle()
    samples_ns = []
    for _ in range(rounds):
        for one in members:
            one.generation = -1
        begin = time.perf_counter_ns()
        await come()
        samples_ns.append(await settle() - begin)
        gone = members.pop(0)
        for one in members:
            one.generation = -1
        begin = time.perf_counter_ns()
        connection.ask("DELETE", f"/consumer-groups/{group}/members/{gone.member_id}/leave")
        samples_ns.append(await settle() - begin)
        gone.close()
    for one in members:
        one.close()
    connection.close()
    return Latencies.of(samples_ns).figures()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.rest_groups", description=__doc__)
    parser.add_argument("--commits", type=int, default=DEFAULT_COMMITS)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--members", type=int, nargs="*", default=DEFAULT_MEMBERS)
    parser.add_argument("--sync", choices=("group", "os"), nargs="*", default=("group", "os"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kwire-rest-groups-") as directory:
        for sync in given.sync:
            server = RunningServer(Kwire({"kwire.log.sync": sync}), Path(directory) / sync)
            try:
                port = int(str(server.metrics_url).rsplit(":", 1)[1].partition("/")[0])
                show(f"commit sync={sync}", measure_commits(port, given.commits))
                for count in given.members:
                    show(
                        f"rebalance polled members={count} sync={sync}",
                        measure_polled_rebalances(port, count, given.rounds),
                    )
                    figures = asyncio.run(measure_streamed_rebalances(port, count, given.rounds))
                    show(f"rebalance streamed members={count} sync={sync}", figures)
            finally:
                server.stop()


def show(work: str, figures: dict[str, float]) -> None:
    print(json.dumps({"work": work, **{name: round(value) for name, value in figures.items()}}), flush=True)


if __name__ == "__main__":
    main()

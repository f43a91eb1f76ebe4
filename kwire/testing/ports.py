"""Ports for test servers, outside the range from which the kernel serves outgoing connections.

A server that is killed and started again needs its port back. A port of the kernel's range may by then belong to a
connection of any other process. Each worker of pytest-xdist has ports of its own, so that two of them never choose the
same one at the same time.
"""

import os
import secrets
import socket
from functools import cache
from pathlib import Path

_HOST = "127.0.0.1"
# Lower ports belong to well-known services; 9092 and 8080 are what people use while they try something.
PORT_MIN = 10_000
PORT_MAX = 65_535
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Fewer are not enough for all servers of a run.
PORT_COUNT_MIN = 2_000
# Linux's default, for a system that does not say.
EPHEMERAL_DEFAULT = (32_768, 60_999)


def unused_port() -> int:
    """A port that nobody listens on and that this process was not given before, unless it has used up all of them."""
    return _own_ports().take()


def usable_ports(ephemeral: tuple[int, int]) -> range:
    """The ports below the kernel's range or those above it, whichever are more; all of them if both are too few."""
    low, high = ephemeral
    outside = max(range(PORT_MIN, low), range(max(high + 1, PORT_MIN), PORT_MAX + 1), key=len)
    return outside if len(outside) >= PORT_COUNT_MIN else range(PORT_MIN, PORT_MAX + 1)


def share_of(ports: range, worker: int, worker_count: int) -> range:
    """The ports of one worker; workers that run at the same time have none in common.

    A worker that replaces a crashed one has a number above the count, and shares the ports of one that started before.
    """
    size = len(ports) // worker_count
    start = worker % worker_count * size
    return ports[start : start + size]


class Ports:
    """Gives the ports of a range in turn, from a random place on: another run on this machine has the same range."""

    def __init__(self, ports: range) -> None:
        self._ports = ports
        # Not from `random`, which pytest-randomly seeds alike in every process.
        self._next = secrets.randbelow(len(ports))

    def take(self) -> int:
        """The next port that can be bound; RuntimeError if there is none."""
        for _ in self._ports:
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            if can_bind(port):
                return port
        raise RuntimeError(f"no unused port among {self._ports[0]} to {self._ports[-1]}")


def can_bind(port: int) -> bool:
    """Whether nobody listens on the port or has just used it."""
    with socket.socket() as probe:
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


@cache
def _own_ports() -> Ports:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    worker_count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return Ports(share_of(usable_ports(_ephemeral_range()), worker, worker_count))


def _ephemeral_range() -> tuple[int, int]:
    if not EPHEMERAL_RANGE.exists():
        return EPHEMERAL_DEFAULT
    low, high = EPHEMERAL_RANGE.read_text().split()
    return int(low), int(high)

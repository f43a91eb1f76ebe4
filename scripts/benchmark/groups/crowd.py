"""Runs many members in one epoll loop: receives their responses, and sends their heartbeats when they are due."""

import select
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from benchmark.groups import wire
from benchmark.groups.members import KINDS, Member, is_shared_out
from benchmark.groups.wire import COME_BACK, Reader
from benchmark.wire import FRAME_LENGTH, WireError, connect, raise_for_error, read_frame

ANSWER_SECONDS = 60
RECEIVE_BYTES = 65_536
# The heartbeat interval during a rebalance. It is the maximum time until a member notices the rebalance.
QUICK_PACE_SECONDS = 0.010
RETRY_SECONDS = 0.02


class _Seat:
    """The state of a member in the epoll loop: its heartbeat interval, its next heartbeat and received bytes."""

    __slots__ = ("due_at", "member", "pace_seconds", "received", "sent_ns")

    def __init__(self, member: Member, pace_seconds: float) -> None:
        self.member = member
        self.pace_seconds = pace_seconds
        self.due_at = 0.0
        self.sent_ns = 0
        self.received = b""


class Crowd:
    """The members. At its end, a `with` statement closes all connections, but the members do not leave their groups."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._epoll = select.epoll()
        self._seats: dict[int, _Seat] = {}
        # A heap of due heartbeats. An entry is valid only if its time equals `due_at` of the member.
        self._due: list[tuple[float, int, _Seat]] = []
        self._numbers: Iterator[int] = count()
        # The latency of each heartbeat since the list was last cleared.
        self.samples_ns = array("q")

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._seats.values():
            seat.member.connection.close()
        self._epoll.close()

    def admit(self, protocol: str, group: str, number: int, topic: str, partition_count: int) -> Member:
        """Return a connected member that has not sent a request yet."""
        connection = connect(self._address, ANSWER_SECONDS)
        member = KINDS[protocol](connection, group, number, topic, partition_count)
        self._seats[connection.fileno()] = _Seat(member, QUICK_PACE_SECONDS)
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        return member

    def start(self, members: Iterable[Member], pace_seconds: float = QUICK_PACE_SECONDS) -> None:
        """Let the members join now."""
        for member in members:
            self.set_pace(member, pace_seconds, time.perf_counter() + pace_seconds)
            member.act()

    def set_pace(self, member: Member, pace_seconds: float, first_at: float) -> None:
        """Send the member's next heartbeat at `first_at`, and then one every `pace_seconds`."""
        seat = self._seats[member.connection.fileno()]
        seat.pace_seconds = pace_seconds
        self._plan(seat, first_at)

    def dismiss(self, members: Iterable[Member]) -> None:
        """Close the connections of the members. They should have left their groups before."""
        for member in members:
            seat = self._seats.pop(member.connection.fileno())
            seat.due_at = 0.0
            self._epoll.unregister(member.connection)
            member.connection.close()

    def play(self, is_over: Callable[[], bool], seconds_max: float) -> float:
        """Run the loop until `is_over` returns true. It is called in every iteration. Return the elapsed seconds."""
        began = now = time.perf_counter()
        while not is_over():
            if now - began > seconds_max:
                raise WireError(f"not there after {seconds_max:.0f} s")
            self._send_due(now)
            wait_seconds = self._due[0][0] - time.perf_counter() if self._due else QUICK_PACE_SECONDS
            for descriptor, _ in self._epoll.poll(max(0.0, wait_seconds)):
                self._take(self._seats[descriptor])
            now = time.perf_counter()
        return now - began

    def settle(self, groups: Sequence[Sequence[Member]], seconds_max: float) -> float:
        """Run the loop until every group has assigned all its partitions. Return the elapsed seconds."""
        open_groups = list(groups)

        def is_over() -> bool:
            while open_groups and is_shared_out(open_groups[-1]):
                open_groups.pop()
            return not open_groups and all(map(is_shared_out, groups))

        return self.play(is_over, seconds_max)

    def _plan(self, seat: _Seat, due_at: float) -> None:
        seat.due_at = due_at
        heappush(self._due, (due_at, next(self._numbers), seat))

    def _send_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            due_at, _, seat = heappop(self._due)
            if seat.due_at != due_at or seat.member.has_left:
                continue
            # If the loop was late, missed heartbeats are not sent afterwards.
            self._plan(seat, max(due_at, now - seat.pace_seconds) + seat.pace_seconds)
            if not seat.member.is_waiting:
                seat.sent_ns = time.perf_counter_ns()
                seat.member.act()

    def _take(self, seat: _Seat) -> None:
        piece = seat.member.connection.recv(RECEIVE_BYTES)
        now_ns = time.perf_counter_ns()
        if not piece:
            raise WireError("the server closed the connection of a member")
        seat.received += piece
        if len(seat.received) < 4 or len(seat.received) < 4 + FRAME_LENGTH.unpack_from(seat.received)[0]:
            return
        frame, seat.received = seat.received, b""
        if seat.member.is_beating:
            self.samples_ns.append(now_ns - seat.sent_ns)
        seat.member.receive(frame)


def await_coordinator(address: tuple[str, int], group: str) -> None:
    """Wait until the group has a coordinator. The first FindCoordinator makes the server create the offsets topic."""
    connection = connect(address, ANSWER_SECONDS)
    deadline = time.perf_counter() + ANSWER_SECONDS
    try:
        while True:
            connection.sendall(wire.find_coordinator(group))
            answer = read_frame(connection)
            error = Reader(answer, wire.ERROR_AT).int16()
            if error not in COME_BACK or time.perf_counter() > deadline:
                raise_for_error("FindCoordinator", answer, wire.ERROR_AT)
                return
            time.sleep(RETRY_SECONDS)
    finally:
        connection.close()

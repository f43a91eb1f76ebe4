"""Sends heartbeats or offset commits as fast as the server answers, with one request in flight per connection.

It is a separate program (`python -m benchmark.groups.request_program --help`). For each connection there is a group
with one member. All commits have the same offset of partition 0. A coordinator stores a commit even if the offset does
not change.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmark.groups import wire
from benchmark.groups.crowd import Crowd
from benchmark.groups.members import ClassicMember
from benchmark.groups.options import CLASSIC
from benchmark.loadgen import CONNECTIONS_MAX, SECONDS_MAX, Load, drive_for
from benchmark.wire import WireError, raise_for_error

SETTLE_SECONDS = 60
OFFSET = 1_000


@dataclass(frozen=True)
class GroupCall:
    """A request of a member, and the position of the error code in its response."""

    api: str
    frame: bytes
    reply_size: int
    error_at: int

    def check(self, reply: bytes) -> None:
        if len(reply) != self.reply_size:
            raise WireError(f"{self.api} answer of {len(reply)} bytes, expected {self.reply_size}")
        raise_for_error(self.api, reply, self.error_at)


def heartbeat_call(member: ClassicMember) -> GroupCall:
    frame = wire.heartbeat(member.group, member.generation, member.member_id)
    return GroupCall("Heartbeat", frame, wire.ERROR_AT + 2, wire.ERROR_AT)


def commit_call(member: ClassicMember) -> GroupCall:
    frame = wire.offset_commit(member.group, member.generation, member.member_id, member.topic, OFFSET)
    # throttle | topic count, name, partition count, index | error
    error_at = wire.ERROR_AT + 4 + 2 + len(member.topic.encode()) + 4 + 4
    return GroupCall("OffsetCommit", frame, error_at + 2, error_at)


CALLS: dict[str, Callable[[ClassicMember], GroupCall]] = {"heartbeat": heartbeat_call, "commit": commit_call}


def request(
    address: tuple[str, int], request_name: str, topic: str, prefix: str, connections: int, seconds: float
) -> Load:
    with Crowd(address) as crowd:
        members = [
            crowd.admit(CLASSIC, f"{prefix}-{number:05d}", number, topic, partition_count=1)
            for number in range(connections)
        ]
        crowd.start(members)
        crowd.settle([[member] for member in members], SETTLE_SECONDS)
        # Wait for all responses, because other connections send the requests of the members from here on.
        crowd.play(lambda: not any(member.is_waiting for member in members), SETTLE_SECONDS)
        calls = [CALLS[request_name](member) for member in members if isinstance(member, ClassicMember)]
        return drive_for(address, calls, connections, seconds, has_own_calls=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.groups.request_program", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--request", choices=tuple(CALLS), required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--prefix", required=True, help="prefix of the group names")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    if not 0 < given.seconds <= SECONDS_MAX or not 0 < given.connections <= CONNECTIONS_MAX:
        parser.error(f"at most {SECONDS_MAX} seconds and {CONNECTIONS_MAX} connections")
    address = (given.host, given.port)
    load = request(address, given.request, given.topic, given.prefix, given.connections, given.seconds)
    json.dump(asdict(load), sys.stdout)


if __name__ == "__main__":
    main()

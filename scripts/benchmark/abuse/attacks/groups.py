"""Very many consumer groups, and requests for all of them."""

import struct

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.http import ask, head
from benchmark.admin import Admin
from benchmark.groups.wire import find_coordinator, offset_commit
from benchmark.wire import raise_for_error, read_frame, request_frame, skip_frame

LIST_GROUPS, LIST_GROUPS_VERSION = 16, 2
TOPIC, GROUP = "abused-groups", "abused-group-"
PIPELINED_MAX = 100
NO_GENERATION = -1


def _prepare(target: Target) -> None:
    """Create the groups: an offset commit without a member creates a group."""
    with Admin(target.kafka_address) as admin:
        admin.make_topic(TOPIC, 1, {})
    with target.kafka() as connection:
        connection.sendall(find_coordinator(f"{GROUP}0"))
        read_frame(connection)
        for first in range(0, target.size, PIPELINED_MAX):
            numbers = range(first, min(first + PIPELINED_MAX, target.size))
            connection.sendall(
                b"".join(offset_commit(f"{GROUP}{number}", NO_GENERATION, "", TOPIC, 1) for number in numbers)
            )
            received = b""
            for _ in numbers:
                received = read_frame(connection, received)
                end = 4 + int(struct.unpack_from(">i", received)[0])
                raise_for_error("OffsetCommit", received, end - 2)  # The only error code is at the end.
                received = received[end:]


def _many_groups(target: Target) -> None:
    with target.kafka() as connection:
        connection.sendall(request_frame(LIST_GROUPS, LIST_GROUPS_VERSION, b""))
        skip_frame(connection)
    with target.http() as connection:
        ask(connection, head("GET", "/api/v1/groups", 0))


ATTACKS = (
    Attack("many-groups", "lists of {} groups, by ListGroups and over HTTP", 100_000, 2_000, _many_groups, _prepare),
)

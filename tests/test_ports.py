"""Ports for test servers (kwire/testing/ports.py): which there are, whose they are, and that used ones are skipped."""

import socket

import pytest

from kwire.testing.ports import PORT_MAX, PORT_MIN, Ports, share_of, unused_port, usable_ports
from tests.support.server import HOST


@pytest.mark.parametrize(
    ("ephemeral", "usable"),
    [
        ((32_768, 60_999), range(PORT_MIN, 32_768)),
        ((15_000, 40_000), range(40_001, PORT_MAX + 1)),
        ((1_024, 50_000), range(50_001, PORT_MAX + 1)),
        ((1_024, 65_535), range(PORT_MIN, PORT_MAX + 1)),
        ((1_024, 5_000), range(PORT_MIN, PORT_MAX + 1)),
    ],
)
def test_ports_of_outgoing_connections_are_left_alone(ephemeral: tuple[int, int], usable: range) -> None:
    assert usable_ports(ephemeral) == usable


def test_workers_have_no_port_in_common() -> None:
    shares = [share_of(range(100, 200), worker, 3) for worker in range(3)]
    assert [len(share) for share in shares] == [33, 33, 33]
    assert len(set().union(*shares)) == 99


def test_a_worker_that_replaces_a_crashed_one_has_ports() -> None:
    assert share_of(range(100, 200), 5, 3) == share_of(range(100, 200), 2, 3)


def test_a_port_in_use_is_passed_by() -> None:
    taken = unused_port()
    ports = Ports(range(taken, taken + 1))
    assert ports.take() == taken
    with socket.create_server((HOST, taken)), pytest.raises(RuntimeError, match="no unused port"):
        ports.take()


def test_ports_come_in_turn() -> None:
    assert len({unused_port() for _ in range(50)}) == 50

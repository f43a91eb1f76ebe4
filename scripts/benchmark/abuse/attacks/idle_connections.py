"""Thousands of connections that send nothing. Those that the server closes are opened again, once a second."""

import socket
from collections.abc import Callable
from contextlib import suppress

from benchmark.abuse.attack import Attack, Target

Opening = Callable[[Target], socket.socket]


def is_open(connection: socket.socket) -> bool:
    """Return whether the server has not closed the connection."""
    try:
        return bool(connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def fill(target: Target, opening: Opening) -> None:
    """Open connections until `size` are open."""
    closed = [connection for connection in target.held if not is_open(connection)]
    for connection in closed:
        connection.close()
    target.held = [connection for connection in target.held if connection.fileno() >= 0]
    for _ in range(target.size - len(target.held)):
        with suppress(OSError):
            target.hold(opening(target))


def _attack(name: str, title: str, opening: Opening) -> Attack:
    def strike(target: Target) -> None:
        fill(target, opening)

    return Attack(name, title, 5_000, 200, strike, is_held=True, keep=strike, is_guarded=True)


ATTACKS = (
    _attack("idle-sasl", "{} connections to a SASL listener that send nothing", Target.kafka),
    _attack("idle-tls", "{} connections to a TLS listener that send nothing", Target.tls),
    _attack("idle-http", "{} HTTP connections that send nothing", Target.http),
)

"""Logins, TLS handshakes and HTTP requests that arrive byte by byte, one byte a second, on many connections."""

from collections.abc import Callable
from contextlib import suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.attacks.idle_connections import Opening, fill
from benchmark.abuse.http import head
from benchmark.abuse.tls_hello import client_hello
from benchmark.access.client_config import MECHANISM
from benchmark.access.login import handshake_frame


def _drip(target: Target, opening: Opening, message: bytes) -> None:
    """Send the next byte on every connection, and open those again that the server has closed."""
    fill(target, opening)
    at = target.drips % len(message)
    target.drips += 1
    for connection in target.held:
        with suppress(OSError):
            connection.send(message[at : at + 1])


def _attack(name: str, title: str, opening: Opening, make_message: Callable[[], bytes]) -> Attack:
    def strike(target: Target) -> None:
        _drip(target, opening, make_message())

    return Attack(name, title, 1_000, 100, strike, is_held=True, keep=strike, is_guarded=True)


ATTACKS = (
    _attack("slow-sasl", "{} SASL handshakes, byte by byte", Target.kafka, lambda: handshake_frame(MECHANISM)),
    _attack("slow-tls", "{} TLS handshakes, byte by byte", Target.tls, client_hello),
    _attack(
        "slow-http",
        "{} HTTP requests, byte by byte",
        Target.http,
        lambda: head("GET", "/rooms", 0, "X-A: " + "a" * 900),
    ),
)

"""Handshakes without end: SASL steps that are repeated, TLS handshakes one after another, and only their beginnings."""

from contextlib import suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.tls_hello import client_hello, shake_hands
from benchmark.access.client_config import MECHANISM
from benchmark.access.login import PLAIN, handshake_frame, token_frame
from benchmark.wire import request_frame

API_VERSIONS, API_VERSIONS_VERSION = 18, 0
STEPS = 100
SCRAM_FIRST = b"n,,n=bench,r=abcdefghijklmnopqrstuvwx"
READ_BYTES = 65_536

_REPEATED = (
    request_frame(API_VERSIONS, API_VERSIONS_VERSION, b"") * STEPS,
    handshake_frame(PLAIN) * STEPS,
    handshake_frame(MECHANISM) + token_frame(SCRAM_FIRST) * STEPS,
    handshake_frame(PLAIN) + token_frame(b"") * STEPS,
    token_frame(SCRAM_FIRST) * STEPS,
)


def _repeated_steps(target: Target) -> None:
    """Send all steps at once, on one connection after another."""
    for number in range(target.size):
        with suppress(OSError), target.kafka() as connection:
            connection.sendall(_REPEATED[number % len(_REPEATED)])


def _unfinished_logins(target: Target) -> None:
    """Begin a login on every connection, and end none of them. Those that the server closes begin again."""
    with suppress(OSError):
        while len(target.held) >= target.size:
            target.held.pop(0).close()
        for _ in range(target.size):
            target.hold(target.kafka()).sendall(handshake_frame(MECHANISM) + token_frame(SCRAM_FIRST))


def _handshakes(target: Target) -> None:
    for _ in range(target.size):
        with suppress(OSError), shake_hands(target.tls()) as connection:
            connection.recv(0)


def _hellos(target: Target) -> None:
    """Send only the first message of a handshake. To answer it, the server has to compute a signature."""
    hello = client_hello()
    for _ in range(target.size):
        with suppress(OSError), target.tls() as connection:
            connection.sendall(hello)


ATTACKS = (
    Attack("sasl-steps", "{} connections with 100 SASL steps", 1_000, 50, _repeated_steps, is_guarded=True),
    Attack("endless-sasl", "{} SCRAM logins begun and not ended", 1_000, 50, _unfinished_logins, is_guarded=True),
    Attack("tls-handshakes", "{} TLS handshakes", 200, 20, _handshakes, is_guarded=True),
    Attack("tls-hellos", "{} TLS handshakes, only begun", 1_000, 50, _hellos, is_guarded=True),
)

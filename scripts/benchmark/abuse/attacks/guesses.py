"""Password guessing from many connections at once: by SASL, where a failed login closes the connection, and by HTTP."""

import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.attacks.idle_connections import Opening
from benchmark.abuse.http import head
from benchmark.access.client_config import MECHANISM, User, basic_authorization
from benchmark.access.login import PLAIN, handshake_frame, plain_token, token_frame
from benchmark.access.servers import CLIENT
from benchmark.wire import WireError, read_frame

# The first user is the one of the good client. The others do not exist.
NAMES = (CLIENT.name, "root", "admin", "nobody")
SCRAM_NONCE = "abcdefghijklmnopqrstuvwx"
WRONG_PROOF = "A" * 43 + "="

Step = Callable[[socket.socket, User], None]


def _send_plain(connection: socket.socket, user: User) -> None:
    connection.sendall(handshake_frame(PLAIN) + token_frame(plain_token(user)))


def _send_scram(connection: socket.socket, user: User) -> None:
    connection.sendall(handshake_frame(MECHANISM) + token_frame(f"n,,n={user.name},r={SCRAM_NONCE}".encode()))


def _send_proof(connection: socket.socket, _user: User) -> None:
    received = read_frame(connection)  # It may have both responses.
    while b"r=" not in received:
        received = read_frame(connection)
    nonce = received.partition(b"r=")[2].partition(b",")[0].decode()
    connection.sendall(token_frame(f"c=biws,r={nonce},p={WRONG_PROOF}".encode()))


def _send_basic(connection: socket.socket, user: User) -> None:
    headers = basic_authorization(user).items()
    connection.sendall(head("GET", "/rooms", 0, "Connection: close", *(f"{name}: {value}" for name, value in headers)))


def _await_end(connection: socket.socket, _user: User) -> None:
    while connection.recv(65_536):
        pass


def _guess(target: Target, connect: Opening, *steps: Step) -> None:
    """Take each step on all connections before the next one, so that the server has all guesses at once."""
    with ExitStack() as stack:
        guesses = []
        for number in range(target.size):
            user = User(NAMES[number % len(NAMES)], f"guess-{target.strikes}-{number}")
            guesses.append((stack.enter_context(connect(target)), user))
        for step in steps:
            for connection, user in guesses:
                with suppress(OSError, WireError):
                    step(connection, user)


ATTACKS = (
    Attack(
        "guess-plain",
        "{} passwords guessed at once by PLAIN",
        500,
        50,
        lambda target: _guess(target, Target.kafka, _send_plain, _await_end),
        is_guarded=True,
    ),
    Attack(
        "guess-scram",
        "{} passwords guessed at once by SCRAM",
        500,
        50,
        lambda target: _guess(target, Target.kafka, _send_scram, _send_proof, _await_end),
        is_guarded=True,
    ),
    Attack(
        "guess-basic",
        "{} passwords guessed at once over HTTP",
        500,
        50,
        lambda target: _guess(target, Target.http, _send_basic, _await_end),
        is_guarded=True,
    ),
)

"""Password guessing from many connections at once: by SASL, where a failed login closes the connection, and by HTTP.

The attacker is impatient: after a second it closes the connections that are not answered, and guesses again.
"""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.attacks.idle_connections import Opening
from benchmark.abuse.http import head
from benchmark.access.client_config import MECHANISM, User, basic_authorization
from benchmark.access.login import PLAIN, handshake_frame, plain_token, token_frame
from benchmark.access.servers import CLIENT

# The first user is the one of the good client. The others do not exist.
NAMES = (CLIENT.name, "root", "admin", "nobody")
SCRAM_NONCE = "abcdefghijklmnopqrstuvwx"
WRONG_PROOF = "A" * 43 + "="
PATIENCE_SECONDS = 1.0
READ_BYTES = 65_536

FirstBytes = Callable[[User], bytes]
# Returns what a client sends next, given all bytes that it has received; None if it waits for more.
Reply = Callable[[bytearray], bytes | None]


def _plain(user: User) -> bytes:
    return handshake_frame(PLAIN) + token_frame(plain_token(user))


def _scram(user: User) -> bytes:
    return handshake_frame(MECHANISM) + token_frame(f"n,,n={user.name},r={SCRAM_NONCE}".encode())


def _scram_proof(received: bytearray) -> bytes | None:
    nonce, comma, _ = received.partition(b"r=")[2].partition(b",")
    if not comma:
        return None
    received.clear()
    return token_frame(f"c=biws,r={nonce.decode()},p={WRONG_PROOF}".encode())


def _basic(user: User) -> bytes:
    headers = basic_authorization(user).items()
    return head("GET", "/rooms", 0, "Connection: close", *(f"{name}: {value}" for name, value in headers))


def _nothing(_received: bytearray) -> None:
    return None


def _guess(target: Target, connect: Opening, first: FirstBytes, reply: Reply = _nothing) -> None:
    """Open all connections before the first guess, so that the server has all guesses at once."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        guesses: list[tuple[socket.socket, User]] = []
        for number in range(target.size):
            user = User(NAMES[number % len(NAMES)], f"guess-{target.strikes}-{number}")
            guesses.append((stack.enter_context(connect(target)), user))
        for connection, user in guesses:
            with suppress(OSError):
                connection.sendall(first(user))
                selector.register(connection, selectors.EVENT_READ, bytearray())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                if not _read(key.fileobj, key.data, reply):
                    selector.unregister(key.fileobj)


def _read(connection: socket.socket, received: bytearray, reply: Reply) -> bool:
    """Read what has arrived, and answer it. Returns False if the server has closed the connection."""
    try:
        data = connection.recv(READ_BYTES)
        received += data
        answer = reply(received)
        if answer is not None:
            connection.sendall(answer)
    except OSError:
        return False
    return bool(data)


ATTACKS = (
    Attack(
        "guess-plain",
        "{} passwords guessed at once by PLAIN",
        500,
        50,
        lambda target: _guess(target, Target.kafka, _plain),
        is_guarded=True,
    ),
    Attack(
        "guess-scram",
        "{} passwords guessed at once by SCRAM",
        500,
        50,
        lambda target: _guess(target, Target.kafka, _scram, _scram_proof),
        is_guarded=True,
    ),
    Attack(
        "guess-basic",
        "{} passwords guessed at once over HTTP",
        500,
        50,
        lambda target: _guess(target, Target.http, _basic),
        is_guarded=True,
    ),
)

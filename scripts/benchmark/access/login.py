"""Logins on raw connections: SASL/PLAIN and SCRAM-SHA-256, encoded by hand, as in `wire.py`."""

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from functools import lru_cache

from benchmark.access.client_config import MECHANISM, User
from benchmark.wire import ERROR_CODE, WireError, read_frame, request_frame

SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION = 36, 1
PLAIN = "PLAIN"
HASH = "sha256"
NONCE_BYTES = 18
BODY_AT = 8  # After the length and the correlation id.


def handshake_frame(mechanism: str) -> bytes:
    return request_frame(SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, struct.pack(">h", len(mechanism)) + mechanism.encode())


def token_frame(token: bytes) -> bytes:
    return request_frame(SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION, struct.pack(">i", len(token)) + token)


def plain_token(user: User) -> bytes:
    return f"\0{user.name}\0{user.password}".encode()


def log_in_plain(connection: socket.socket, user: User) -> None:
    """Raise WireError if the server refuses the login."""
    shake_hands(connection, PLAIN)
    send_token(connection, plain_token(user))


def log_in_scram(connection: socket.socket, user: User) -> None:
    """Raise WireError if the server refuses the login, or does not know the password itself."""
    shake_hands(connection, MECHANISM)
    first = f"n={user.name},r={base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()}"
    server_first = send_token(connection, f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = salted_password(user.password, base64.b64decode(fields["s"]), int(fields["i"]))
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first},{server_first},{without_proof}".encode()
    key = hmac.digest(salted, b"Client Key", HASH)
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, HASH)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    final = send_token(connection, f"{without_proof},p={base64.b64encode(proof).decode()}".encode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", HASH), signed, HASH)
    if final != b"v=" + base64.b64encode(expected):
        raise WireError("the server does not know the password")


@lru_cache(maxsize=1024)
def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    """Return SCRAM's SaltedPassword. It takes milliseconds, so programs that log in often compute it once."""
    return hashlib.pbkdf2_hmac(HASH, password.encode(), salt, iterations)


def shake_hands(connection: socket.socket, mechanism: str) -> None:
    connection.sendall(handshake_frame(mechanism))
    (code,) = ERROR_CODE.unpack_from(read_frame(connection), BODY_AT)
    if code:
        raise WireError(f"SaslHandshake answered error code {code}")


def send_token(connection: socket.socket, token: bytes) -> bytes:
    """Send a token, and return that of the server."""
    connection.sendall(token_frame(token))
    reply = read_frame(connection)
    code, message_size = struct.unpack_from(">hh", reply, BODY_AT)
    at = BODY_AT + 4 + max(message_size, 0)
    if code:
        raise WireError(f"SaslAuthenticate answered error code {code}: {reply[BODY_AT + 4 : at].decode()}")
    (size,) = struct.unpack_from(">i", reply, at)
    return reply[at + 4 : at + 4 + size]


LOGINS: dict[str, Callable[[socket.socket, User], None]] = {PLAIN: log_in_plain, MECHANISM: log_in_scram}

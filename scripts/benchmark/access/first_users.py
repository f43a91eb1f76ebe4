"""Users whose passwords the server has not checked yet. It remembers right passwords, so each serves one such login."""

import secrets
import struct

from benchmark.access.client_config import User
from benchmark.access.login import log_in_scram, salted_password
from benchmark.wire import WireError, connect, read_frame, request_frame

ALTER_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS_VERSION = 51, 0
SCRAM_SHA_256 = 1
ITERATIONS, SALT_BYTES = 4_096, 16
PASSWORD = "only-of-a-benchmark-3"
ANSWER_TIMEOUT_SECONDS = 60
NO_TAGS = b"\0"
# After the length, the correlation id and its tags: throttle time, error code.
ERROR_AT = 4 + 4 + 1 + 4


def first_user(number: int) -> User:
    return User(f"first-{number}", PASSWORD)


def add_first_users(address: tuple[str, int], admin: User, count: int) -> None:
    """Create `first_user(0)` and so on, with the same password and salt, because each salted password takes time."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(PASSWORD, salt, ITERATIONS)
    shared = struct.pack(">bi", SCRAM_SHA_256, ITERATIONS) + _compact(salt) + _compact(salted) + NO_TAGS
    users = b"".join(_compact(first_user(number).name.encode()) + shared for number in range(count))
    body = NO_TAGS + _uvarint(1) + _uvarint(count + 1) + users + NO_TAGS
    with connect(address, ANSWER_TIMEOUT_SECONDS) as connection:
        log_in_scram(connection, admin)
        connection.sendall(request_frame(ALTER_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS_VERSION, body))
        _check(read_frame(connection), count)


def _check(reply: bytes, count: int) -> None:
    at = ERROR_AT
    size, at = _read_uvarint(reply, at)
    if size != count + 1:
        raise WireError(f"AlterUserScramCredentials answered {size - 1} of {count} users")
    for _ in range(count):
        size, at = _read_uvarint(reply, at)
        at += size - 1
        (code,) = struct.unpack_from(">h", reply, at)
        size, at = _read_uvarint(reply, at + 2)
        if code:
            raise WireError(f"AlterUserScramCredentials answered error code {code}")
        at += max(size - 1, 0) + len(NO_TAGS)


def _compact(data: bytes) -> bytes:
    return _uvarint(len(data) + 1) + data


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the value, and the position after it."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1

"""Frames of clients that have not logged in: wrong lengths, 512 KiB that do not end or mean nothing, many tags."""

import selectors
import struct
import time
from contextlib import suppress
from itertools import cycle, islice

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.attacks.held_http import push
from benchmark.access.client_config import MECHANISM
from benchmark.access.login import SASL_AUTHENTICATE, handshake_frame, token_frame
from benchmark.wire import CLIENT_ID, CORRELATION_ID, FRAME_LENGTH, request_frame

KIBIBYTE = 1 << 10
LOGIN_FRAME_BYTES = 512 * KIBIBYTE  # The default of sasl.server.max.receive.size.
API_VERSIONS, FLEXIBLE_API_VERSIONS_VERSION = 18, 3
FLEXIBLE_SASL_AUTHENTICATE_VERSION = 2
UPLOAD_SECONDS_MAX = 10.0
UNSENT_BYTES = 1_000  # Enough for one byte a second.
MOST_TAGS = b"\xff\xff\xff\xff\x0f"
LENGTHS = (2**31 - 1, -1, -(2**31), LOGIN_FRAME_BYTES + 1, 0, 1)


def _lengths(target: Target) -> None:
    for length in islice(cycle(LENGTHS), target.size):
        with suppress(OSError), target.kafka() as connection:
            connection.sendall(FRAME_LENGTH.pack(length) + bytes(KIBIBYTE))


def _half_sent(target: Target) -> None:
    """Send all frames at the same time, each as fast as the server reads it, without their ends."""
    frame = request_frame(API_VERSIONS, FLEXIBLE_API_VERSIONS_VERSION, bytes(LOGIN_FRAME_BYTES - 100))
    begun = memoryview(frame)[:-UNSENT_BYTES]
    with selectors.DefaultSelector() as selector:
        for _ in range(target.size):
            connection = target.hold(target.kafka())
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE, begun)
        deadline = time.monotonic() + UPLOAD_SECONDS_MAX
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(timeout=1):
                push(selector, key)


def _drip(target: Target) -> None:
    for connection in target.held:
        with suppress(OSError):
            connection.send(b"\0")


def _tokens(target: Target) -> None:
    """Send whole frames of the maximum size: a token, and a client id that is refused."""
    token = handshake_frame(MECHANISM) + token_frame(bytes(LOGIN_FRAME_BYTES - 100))
    nothing = FRAME_LENGTH.pack(LOGIN_FRAME_BYTES) + bytes(LOGIN_FRAME_BYTES)
    for number in range(target.size):
        with suppress(OSError), target.kafka() as connection:
            connection.sendall(nothing if number % 2 else token)


def _tags(count: bytes, size: int) -> bytes:
    """Return tagged fields without data, with their number in front: `count`, which may be wrong."""
    return count + b"\1\0" * ((size - len(count)) // 2)


def _uvarint3(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F))


def _frame(api_key: int, version: int, rest: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    return FRAME_LENGTH.pack(len(head) + len(rest)) + head + rest


def _tag_bombs() -> list[bytes]:
    """Return frames with as many tags as fit, in the header and in the body, and with wrong numbers of them."""
    room = LOGIN_FRAME_BYTES - 200
    right = _uvarint3((room - 3) // 2)
    strings = b"\2a\2b"  # The two strings of ApiVersions.
    token = handshake_frame(MECHANISM)
    bombs = []
    for count in (right, MOST_TAGS):
        tags = _tags(count, room)
        bombs.append(_frame(API_VERSIONS, FLEXIBLE_API_VERSIONS_VERSION, tags))
        bombs.append(_frame(API_VERSIONS, FLEXIBLE_API_VERSIONS_VERSION, b"\0" + strings + tags))
        bombs.append(token + _frame(SASL_AUTHENTICATE, FLEXIBLE_SASL_AUTHENTICATE_VERSION, b"\0" + b"\2a" + tags))
    return bombs


def _send_tag_bombs(target: Target) -> None:
    for bomb in islice(cycle(_tag_bombs()), target.size):
        with suppress(OSError), target.kafka() as connection:
            connection.sendall(bomb)


ATTACKS = (
    Attack("frame-lengths", "{} frames of impossible lengths before a login", 1_000, 50, _lengths, is_guarded=True),
    Attack(
        "half-sent-logins",
        "{} frames of 512 KiB before a login, without their ends",
        1_000,
        50,
        _half_sent,
        is_held=True,
        keep=_drip,
        is_guarded=True,
    ),
    Attack("login-frames", "{} frames of 512 KiB before a login", 200, 20, _tokens, is_guarded=True),
    Attack("tag-bombs", "{} frames with 262,000 tags before a login", 100, 12, _send_tag_bombs, is_guarded=True),
)

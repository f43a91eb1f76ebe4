"""Reads lines from a file or a pipe, many at a time."""

import os
import select
from collections.abc import Iterator

from kwire.cli.records.record import InvalidInput

READ_BYTES = 256 * 1024
# Bound of one line, and of a file that becomes one record. Servers accept 1 MiB by default.
LINE_BYTES_MAX = 256 * 1024 * 1024


def read_lines(descriptor: int, delimiter: bytes = b"\n", linger_seconds: float | None = None) -> Iterator[list[bytes]]:
    """Yield the lines of the input without their delimiters, as many as have arrived.

    When no input arrives for `linger_seconds`, an empty list is yielded, and then the input is waited for.
    """
    # The beginning of a line whose end has not arrived.
    pieces: list[bytes] = []
    size = 0
    while True:
        if linger_seconds is not None and not _is_ready(descriptor, linger_seconds):
            yield []
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        if len(delimiter) > 1 and pieces:
            # The delimiter may have been cut in two.
            data = b"".join((*pieces, data))
            pieces, size = [], 0
        first, *others = data.split(delimiter)
        pieces.append(first)
        size += len(first)
        if size > LINE_BYTES_MAX:
            raise InvalidInput(f"a line of the input is longer than {LINE_BYTES_MAX} bytes")
        if others:
            *lines, rest = others
            yield [b"".join(pieces), *lines]
            pieces, size = ([rest], len(rest)) if rest else ([], 0)
    if size:
        yield [b"".join(pieces)]


def read_whole(descriptor: int) -> bytes:
    """Return everything that can be read."""
    pieces: list[bytes] = []
    size = 0
    while data := os.read(descriptor, READ_BYTES):
        pieces.append(data)
        size += len(data)
        if size > LINE_BYTES_MAX:
            raise InvalidInput(f"the input is longer than {LINE_BYTES_MAX} bytes, the most that one record can have")
    return b"".join(pieces)


def _is_ready(descriptor: int, timeout_seconds: float) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(timeout_seconds * 1000))

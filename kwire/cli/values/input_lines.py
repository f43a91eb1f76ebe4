"""The lines of standard input, in batches as they arrive."""

import sys
from collections.abc import Iterator
from io import BufferedIOBase
from typing import cast

READ_BYTES = 64 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024


def line_batches(lines_max: int) -> Iterator[list[str]]:
    """Yield the lines of standard input without line breaks, at most `lines_max` at once. Empty lines are left out.

    Lines that have arrived are yielded without waiting for more. Raises ValueError if a line is too long.
    """
    source, rest = cast(BufferedIOBase, sys.stdin.buffer), b""
    while data := source.read1(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of the input is longer than the maximum of {LINE_BYTES_MAX} bytes")
        for first in range(0, len(lines), lines_max):
            yield from _texts(lines[first : first + lines_max])
    yield from _texts([rest])


def _texts(lines: list[bytes]) -> Iterator[list[str]]:
    texts = [line.decode().rstrip("\r") for line in lines if line.strip()]
    if texts:
        yield texts

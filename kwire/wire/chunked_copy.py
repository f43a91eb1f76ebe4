"""Copies large opaque data in chunks, so that the caller can yield to the event loop between chunks."""

from collections.abc import Generator
from io import BytesIO

# Bytes that are copied between two yields. A copy to fresh memory takes half a millisecond per megabyte.
COPIED_BYTES_PER_CHUNK = 128 * 1024


def copied(data: memoryview) -> Generator[None, None, bytes]:
    """Copy the bytes and yield after each chunk. The generator returns the copy."""
    # `bytes(n)` maps zero pages without writing them. The buffer has its final size, so it is never enlarged and moved.
    copy = BytesIO(bytes(len(data)))
    for start in range(0, len(data), COPIED_BYTES_PER_CHUNK):
        if start:
            yield
        copy.write(data[start : start + COPIED_BYTES_PER_CHUNK])
    return copy.getvalue()  # This does not copy again.

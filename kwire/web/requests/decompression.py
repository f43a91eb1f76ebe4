"""Limits on the decompressed size of compressed bodies. aiohttp decompresses in small steps while the body is read.

A hundred kilobytes of gzip can contain a hundred megabytes. The size limits on bodies apply to the decompressed bytes.
In addition, a body of more than UNIFORM_BYTES_MAX is refused if it expands more than RATIO_MAX times. A stream of lines
has no other size limit, so a compressed stream may expand to at most LINES_BYTES_MAX.
"""

from aiohttp import EMPTY_PAYLOAD, StreamReader

from kwire.web.answers.errors import Refusal

# The compression ratio is typically 10 for JSON, and 50 for very repetitive JSON.
RATIO_MAX = 100
# Up to this decompressed size any ratio is accepted.
UNIFORM_BYTES_MAX = 1024 * 1024
# The maximum number of decompressed bytes of one compressed stream of lines.
LINES_BYTES_MAX = 1024 * 1024 * 1024


def is_compressed(content: StreamReader) -> bool:
    return _compressed_bytes(content) is not None


def check_expansion(content: StreamReader, size_bytes: int, bytes_max: int | None = None) -> None:
    """Raise a Refusal with status 413 if a compressed body expands more than RATIO_MAX times, or to more than
    `bytes_max` bytes."""
    compressed_bytes = _compressed_bytes(content)
    if compressed_bytes is None:
        return
    if size_bytes > UNIFORM_BYTES_MAX and size_bytes > RATIO_MAX * compressed_bytes:
        raise Refusal(
            f"the compressed body expands more than {RATIO_MAX} times: send it without Content-Encoding",
            code="ExpandsTooMuch",
            status=413,
            limit=RATIO_MAX,
        )
    if bytes_max is not None and size_bytes > bytes_max:
        raise Refusal(
            f"the compressed body expands to more than {bytes_max} bytes: send the rest in another request",
            code="BodyTooLarge",
            status=413,
            limit=bytes_max,
        )


def _compressed_bytes(content: StreamReader) -> int | None:
    # EMPTY_PAYLOAD, the reader of a request without a body, has no attribute `total_compressed_bytes`.
    return None if content is EMPTY_PAYLOAD else content.total_compressed_bytes

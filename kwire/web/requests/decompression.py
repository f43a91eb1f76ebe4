"""How far a compressed body may expand. aiohttp decompresses it in small steps, as the body is read.

A hundred kilobytes of gzip can hold a hundred megabytes. The limits on bodies count what comes out. On top of that a
body that expands more than a hundredfold is refused, and a stream of lines, which has no limit of its own, has one on
what comes out.
"""

from aiohttp import EMPTY_PAYLOAD, StreamReader

from kwire.web.errors import Refusal

# JSON compresses to a tenth, very uniform JSON to a fiftieth.
RATIO_MAX = 100
# A small body may be as uniform as it likes.
UNIFORM_BYTES_MAX = 1024 * 1024
# Of one stream of lines.
LINES_BYTES_MAX = 1024 * 1024 * 1024


def is_compressed(content: StreamReader) -> bool:
    return _compressed_bytes(content) is not None


def check_expansion(content: StreamReader, size_bytes: int, bytes_max: int | None = None) -> None:
    """Raise a refusal with status 413 if the bytes read from a compressed body are out of proportion, or too many."""
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
            f"a compressed body may expand to {bytes_max} bytes: send the rest in another request",
            code="BodyTooLarge",
            status=413,
            limit=bytes_max,
        )


def _compressed_bytes(content: StreamReader) -> int | None:
    # The reader of a request without a body has none of this.
    return None if content is EMPTY_PAYLOAD else content.total_compressed_bytes

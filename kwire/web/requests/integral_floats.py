"""Whole numbers that were written with a fraction of nothing: `5539.0`, as some languages do.

JSON Schema takes them for integers, so the description of this API does, and msgspec does not. They are looked for only
where decoding has failed for one of them, so nobody else pays for it.
"""

import re
from typing import Any

import msgspec

# To look through a body takes some ten milliseconds a megabyte.
LOOKED_AT_BYTES_MAX = 64 * 1024

# A text, which is left alone, or such a number.
_TEXT_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d+)\.0+(?![\d.eE])', re.DOTALL)
_COMPLAINT = "got `float`"


def may_be_whole(raw: bytes | bytearray | memoryview, error: msgspec.ValidationError) -> bool:
    """Whether `raw` could not be decoded for a number with a fraction, and is short enough to look for it."""
    return len(raw) <= LOOKED_AT_BYTES_MAX and _COMPLAINT in str(error)


def decoded_anyway(raw: bytes | bytearray | memoryview, shape: Any) -> Any:
    """What `raw` says if its only fault is such numbers; raises what msgspec raises if there is another."""
    plain = _TEXT_OR_NUMBER.sub(lambda found: found[1] or found[0], raw)
    msgspec.json.decode(plain, type=shape)
    # Not the plain one: data of events stays as it was written.
    return msgspec.json.decode(raw, type=shape, strict=False)

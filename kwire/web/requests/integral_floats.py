"""Decodes integers that are written with a zero fraction (`5539.0`), as some languages serialise them.

JSON Schema, and so the API's OpenAPI document, accepts such numbers as integers. msgspec does not. The functions of
this module run only after decoding has failed because of a float, so other requests have no extra cost.
"""

import re
from typing import Any

import msgspec

# Larger bodies are not scanned. Scanning a body takes about ten milliseconds per megabyte.
SCANNED_BYTES_MAX = 64 * 1024

# Matches a string, or a number with a zero fraction. It matches strings so that numbers inside strings are not changed.
_TEXT_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d+)\.0+(?![\d.eE])', re.DOTALL)
_FLOAT_ERROR = "got `float`"


def failed_on_float(raw: bytes | bytearray | memoryview, error: msgspec.ValidationError) -> bool:
    """Return whether decoding failed because of a float and `raw` is short enough to be scanned."""
    return len(raw) <= SCANNED_BYTES_MAX and _FLOAT_ERROR in str(error)


def decode_integral_floats(raw: bytes | bytearray | memoryview, shape: Any) -> Any:
    """Decode `raw` and accept numbers with a zero fraction as integers. Raises msgspec.ValidationError if another value
    is invalid."""
    plain = _TEXT_OR_NUMBER.sub(lambda found: found[1] or found[0], raw)
    msgspec.json.decode(plain, type=shape)
    # Decode `raw` and not `plain`, because the data of events is stored as it was sent.
    return msgspec.json.decode(raw, type=shape, strict=False)

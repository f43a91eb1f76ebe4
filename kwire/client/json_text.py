"""JSON encoding of requests. Values that JSON cannot represent are rejected before anything is sent."""

import json
from typing import Any

from kwire.client.errors import InvalidEvent


def json_text(value: Any) -> str:
    """Return the value as one line of ASCII JSON.

    InvalidEvent is raised for NaN, infinities, lone surrogates and integers with more than 4,300 digits.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        if "\\ud" in text:
            # `dumps` escapes a lone surrogate without an error. Encoding the unescaped text raises UnicodeEncodeError.
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidEvent("InvalidEvent", f"the event cannot be encoded as JSON: {error}", {}) from None
    return text

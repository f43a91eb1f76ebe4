"""JSON of requests: values that JSON cannot hold are refused before anything is sent."""

import json
from typing import Any

from kwire.client.errors import InvalidEvent


def json_text(value: Any) -> str:
    """One line of ASCII. Raises InvalidEvent for NaN, infinities, lone surrogates and integers of over 4,300 digits."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        if "\\ud" in text:
            # A surrogate that is not one of a pair can be escaped, but not encoded.
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidEvent("InvalidEvent", f"the event cannot be written as JSON: {error}", {}) from None
    return text

"""Reads schemas from a JSON file."""

import json
import sys
from pathlib import Path
from typing import Any

from kwire.cli.framework.errors import UsageError

FILE_BYTES_MAX = 16 * 1024 * 1024
STANDARD_INPUT = Path("-")


def read_schemas(path: Path) -> list[dict[str, Any]]:
    """Return the schemas of a file: one, an array, or an object with `schemas`. Raises UsageError."""
    try:
        if path == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("schemas", [value])
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise UsageError(f"{path}: expected a schema, or an array of schemas")
    return value

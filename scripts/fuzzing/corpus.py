"""The captured frames of stock clients: the files `corpus/<api>_v<version>.hex`, with one frame per line, in hex.

`kwire wire decode` prints such a file. `scripts/fuzz --capture` records all files again.
"""

import struct
from pathlib import Path

from kwire.wire.apis import APIS

FOLDER = Path(__file__).parent / "corpus"


def frames() -> list[bytes]:
    """Return every captured request, including its size field."""
    return [
        bytes.fromhex(line)
        for path in sorted(FOLDER.glob("*.hex"))
        for line in path.read_text(encoding="ascii").splitlines()
        if not line.startswith("#")
    ]


def call_of(frame: bytes) -> tuple[int, int]:
    """Return the API key and the version of a request that includes its size field."""
    key, version = struct.unpack_from(">hh", frame, 4)
    return key, version


def file_name(key: int, version: int) -> str:
    return f"{APIS[key].request.__module__.rpartition('.')[2]}_v{version}.hex"

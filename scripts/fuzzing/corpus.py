"""The seeds: frames of stock clients, one hex line each in `corpus/<api>_v<version>.hex`.

`kwire wire decode` prints such a file; `scripts/fuzz --capture` makes them anew.
"""

import struct
from pathlib import Path

from kwire.wire.apis import APIS

FOLDER = Path(__file__).parent / "corpus"


def frames() -> list[bytes]:
    """Every captured request, with its size in front."""
    return [
        bytes.fromhex(line)
        for path in sorted(FOLDER.glob("*.hex"))
        for line in path.read_text(encoding="ascii").splitlines()
        if not line.startswith("#")
    ]


def call_of(frame: bytes) -> tuple[int, int]:
    """(API key, version) of a request with its size in front."""
    key, version = struct.unpack_from(">hh", frame, 4)
    return key, version


def file_name(key: int, version: int) -> str:
    return f"{APIS[key].request.__module__.rpartition('.')[2]}_v{version}.hex"

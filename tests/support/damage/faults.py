"""The ways in which a file is damaged."""

import enum
import shutil
from pathlib import Path

# Fewer bytes than the smallest record batch: a file cut by so many ends inside one.
CUT_BYTES = 20
GARBAGE = bytes(range(129, 129 + 37))


class Fault(enum.StrEnum):
    REMOVED = "removed"
    EMPTIED = "emptied"
    FLIPPED = "flipped"
    CUT = "cut"
    APPENDED = "appended"


class Stop(enum.StrEnum):
    """How the server ended before the damage was done."""

    CLEAN = "clean"
    KILLED = "killed"


def damage(path: Path, fault: Fault) -> None:
    """Damage a file, or remove a folder. Zeros at the end of a file are reserved space and count as nothing."""
    if path.is_dir():
        assert fault is Fault.REMOVED
        shutil.rmtree(path)
        return
    if fault is Fault.REMOVED:
        path.unlink()
        return
    data = path.read_bytes()
    content = data.rstrip(b"\0")
    match fault:
        case Fault.EMPTIED:
            data = b""
        case Fault.FLIPPED:
            at = len(content) // 3
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] if data else data
        case Fault.CUT:
            data = content[: max(len(content) - CUT_BYTES, len(content) // 2)]
        case Fault.APPENDED:
            data += GARBAGE
    path.write_bytes(data)

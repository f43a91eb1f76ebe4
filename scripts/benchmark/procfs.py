"""Reads the CPU time and the memory of a server and its child processes from /proc."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of the process, and of its ended and running children."""
    ticks = 0
    for member in family(pid):
        fields = _stat_fields(member)
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def anonymous_bytes(pid: int) -> int:
    """Return the resident memory that is not backed by a file. Mapped segments belong to the page cache, not to it."""
    return _memory_bytes(pid, ANONYMOUS)


def anonymous_bytes_of(members: Sequence[int]) -> int:
    """Return the anonymous memory of these processes, without a search for child processes."""
    return _memory_bytes_of(members, ANONYMOUS)


def resident_bytes(pid: int) -> int:
    """Return all resident memory, including mapped files. Memory that two processes share is counted twice."""
    return _memory_bytes(pid, RESIDENT)


def _memory_bytes(pid: int, kind: re.Pattern[str]) -> int:
    return _memory_bytes_of(family(pid), kind)


def _memory_bytes_of(members: Sequence[int], kind: re.Pattern[str]) -> int:
    found = (kind.search(_read(PROC / str(member) / "status")) for member in members)
    return sum(int(match[1]) * 1024 for match in found if match)


def family(pid: int) -> list[int]:
    """Return the ids of the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            children.setdefault(int(fields[1]) if fields else 0, []).append(int(entry.name))
    members = [pid]
    for member in members:
        members.extend(children.get(member, ()))
    return members


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program name. The name may contain spaces and brackets."""
    return _read(PROC / str(pid) / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # The process ended between the listing and the reading.

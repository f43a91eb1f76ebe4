"""What Linux says about a server from the outside: CPU time and anonymous memory, its child processes included."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, of its ended children and of those that still run."""
    ticks = 0
    for member in family(pid):
        fields = _stat_fields(member)
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def anonymous_bytes(pid: int) -> int:
    """Resident memory that is not backed by a file: mapped log segments belong to the page cache, not to the server."""
    return _memory_bytes(pid, ANONYMOUS)


def anonymous_bytes_of(members: Sequence[int]) -> int:
    """The same of processes that are known: a look at each, and at no other."""
    return _memory_bytes_of(members, ANONYMOUS)


def resident_bytes(pid: int) -> int:
    """All resident memory, mapped pages of files included; what two processes of the family share counts twice."""
    return _memory_bytes(pid, RESIDENT)


def _memory_bytes(pid: int, kind: re.Pattern[str]) -> int:
    return _memory_bytes_of(family(pid), kind)


def _memory_bytes_of(members: Sequence[int], kind: re.Pattern[str]) -> int:
    found = (kind.search(_read(PROC / str(member) / "status")) for member in members)
    return sum(int(match[1]) * 1024 for match in found if match)


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
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
    """The fields of /proc/PID/stat from the state on; the program's name before them may hold spaces and brackets."""
    return _read(PROC / str(pid) / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # The process ended between the listing and the reading.

"""What tests let a worker process do; imports no more than a worker should."""

import gc
import os
import signal
import sys
import time
import weakref
from pathlib import Path

from storage.errors import DamagedLog, DiskFailure

WAIT_SECONDS = 20.0


def block_until_killed(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(WAIT_SECONDS)


def work_until_killed() -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        pass


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_damage(place: str) -> None:
    raise DamagedLog(f"damaged at {place}")


def raise_full_disk() -> None:
    raise DiskFailure("no space", 28)


def facts() -> tuple[int, int, list[str]]:
    return os.getpid(), os.nice(0), [name for name in ("asyncio", "kwire.broker.topics.topics") if name in sys.modules]


def print_something() -> str:
    print("this is no answer")
    return "answer"


def unsendable() -> object:
    return lambda: None


def kinds_and_sizes(*args: bytes | str) -> list[tuple[str, int]]:
    return [(type(arg).__name__, len(arg)) for arg in args]


# Values that a worker process still holds after a call, counted by `kept_arguments`.
_kept: "weakref.WeakSet[_Kept]" = weakref.WeakSet()


class _Kept:
    """A value that the garbage collector has not freed."""


def raise_with_argument(data: bytes) -> None:
    gc.disable()
    kept = _Kept()
    _kept.add(kept)
    raise ValueError(f"{len(data)} bytes")


def kept_arguments() -> int:
    return len(_kept)

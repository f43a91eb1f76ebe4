"""What tests let a worker process do; imports no more than a worker should."""

import os
import signal
import sys
import time
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
    return os.getpid(), os.nice(0), [name for name in ("asyncio", "kwire.broker.topics") if name in sys.modules]


def print_something() -> str:
    print("this is no answer")
    return "answer"


def unsendable() -> object:
    return lambda: None

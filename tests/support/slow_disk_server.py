"""kwire on a slow disk: `python -m tests.support.slow_disk_server SECONDS_FILE CALLS_FILE serve ...`.

While SECONDS_FILE exists, each call that may wait for the disk takes as many seconds longer as it says. Each such call
that is made on the thread of the event loop leaves a line in CALLS_FILE. Run as a program, by `SlowDiskProcess`.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire.cli import main
from storage.disk.files import Files

SYNC_CALLS = ("fsync", "fdatasync", "syncfs")
CALLS = (*SYNC_CALLS, "fallocate", "truncate", "unlink", "rmdir", "rename")


def _slow(name: str, seconds_path: Path, calls_path: Path) -> Callable[..., None]:
    call = getattr(Files, name)

    def slow(self: Files, *args: Any) -> None:
        try:
            seconds = float(seconds_path.read_text() or 0)
        except FileNotFoundError:
            seconds = 0.0
        if seconds and threading.current_thread() is threading.main_thread():
            callers = [
                f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in traceback.extract_stack()
            ]
            with calls_path.open("a") as file:
                file.write(f"{name}: {' > '.join(callers[-8:-1])}\n")
        time.sleep(seconds)
        call(self, *args)

    return slow


if __name__ == "__main__":
    for one in CALLS:
        setattr(Files, one, _slow(one, Path(sys.argv[1]), Path(sys.argv[2])))
    sys.exit(main(sys.argv[3:]))

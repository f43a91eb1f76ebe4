"""kwire on a disk whose syncs take as long as a file says: `python -m tests.support.slow_sync_server FILE serve ...`.

The file holds seconds; while it does not exist, syncs take what they take. Run as a program, by `SlowSyncProcess`.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire.cli import main
from storage.files import Files


def _slow(call: Callable[..., None], seconds_path: Path) -> Callable[..., None]:
    def sync(self: Files, *args: Any) -> None:
        try:
            seconds = float(seconds_path.read_text() or 0)
        except FileNotFoundError:
            seconds = 0.0
        time.sleep(seconds)
        call(self, *args)

    return sync


if __name__ == "__main__":
    path = Path(sys.argv[1])
    for name in ("fsync", "fdatasync", "syncfs"):
        setattr(Files, name, _slow(getattr(Files, name), path))
    sys.exit(main(sys.argv[2:]))

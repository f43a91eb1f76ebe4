"""A real server whose syncs the test can slow down while it runs."""

import sys
from pathlib import Path

from tests.support import slow_sync_server
from tests.support.server import KwireProcess

ROOT = Path(__file__).parents[2]


class SlowSyncProcess(KwireProcess):
    """After `slow_down(s)` each sync that begins takes `s` seconds longer."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, env={"PYTHONPATH": str(ROOT)})
        self._seconds_path = directory / "sync_seconds"

    def command(self) -> list[str]:
        _, *arguments = super().command()
        return [sys.executable, "-m", slow_sync_server.__name__, str(self._seconds_path), *arguments]

    def slow_down(self, seconds: float) -> None:
        self._seconds_path.write_text(str(seconds))

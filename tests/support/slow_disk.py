"""A real server whose disk the test can slow down while it runs."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import slow_disk_server
from tests.support.server import KwireProcess

ROOT = Path(__file__).parents[2]


class SlowDiskProcess(KwireProcess):
    """After `slow_down(s)` each sync, allocation, cut, rename and removal that begins takes `s` seconds longer."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, env={"PYTHONPATH": str(ROOT)}, settings=settings)
        self._seconds_path = directory / "slow_seconds"
        self._calls_path = directory / "calls_on_the_loop"

    def command(self) -> list[str]:
        _, *arguments = super().command()
        paths = [str(self._seconds_path), str(self._calls_path)]
        return [sys.executable, "-m", slow_disk_server.__name__, *paths, *arguments]

    def slow_down(self, seconds: float) -> None:
        written = self._seconds_path.with_suffix(".new")
        written.write_text(str(seconds))
        written.rename(self._seconds_path)

    def speed_up(self) -> None:
        self._seconds_path.unlink(missing_ok=True)

    def calls_on_the_loop(self) -> list[str]:
        """The slow calls that the thread of the event loop has made itself, with their callers."""
        return self._calls_path.read_text().splitlines() if self._calls_path.exists() else []

"""Measures the anonymous memory of a server in the background: its peak, and when it is released again."""

import threading
import time
from types import TracebackType

from benchmark import procfs
from benchmark.servers import RunningServer

MEBIBYTE = 1 << 20
LOOK_SECONDS = 0.05
LOOKS_PER_FAMILY = 20  # To list the server's processes takes longer than to measure their memory.
JOIN_SECONDS = 5.0


class MemoryWatch:
    """Measures memory in a `with` block. Mapped segments are not counted, because they belong to the page cache."""

    def __init__(self, server: RunningServer) -> None:
        self._pid = server.pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.rest_bytes = self.latest_bytes = self.peak_bytes = procfs.anonymous_bytes(self._pid)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=JOIN_SECONDS)

    @property
    def growth_mib(self) -> float:
        return (self.peak_bytes - self.rest_bytes) / MEBIBYTE

    @property
    def left_mib(self) -> float:
        return (self.latest_bytes - self.rest_bytes) / MEBIBYTE

    def await_back(self, left_mib_max: float, seconds_max: float) -> float:
        """Wait until at most `left_mib_max` of the growth is left, or for `seconds_max`. Return the seconds waited."""
        started = time.monotonic()
        while self.left_mib > left_mib_max and time.monotonic() - started < seconds_max:
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - started

    def _watch(self) -> None:
        looks = 0
        members: list[int] = []
        while not self._ended.wait(LOOK_SECONDS):
            if looks % LOOKS_PER_FAMILY == 0:
                members = procfs.family(self._pid)
            looks += 1
            self.latest_bytes = procfs.anonymous_bytes_of(members)
            self.peak_bytes = max(self.peak_bytes, self.latest_bytes)

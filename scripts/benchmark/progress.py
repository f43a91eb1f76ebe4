"""Progress on standard error: one live line on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

BAR_WIDTH = 24
CLEAR_LINE = "\r\x1b[K"
REFRESH_SECONDS = 1.0


class Progress:
    """Shows the progress of steps. The remaining time is the sum of their estimates, scaled by the pace so far."""

    def __init__(self, steps: int, estimate_seconds: float) -> None:
        self._steps = steps
        self._estimate_seconds = estimate_seconds
        self._done_steps = 0
        self._done_seconds = 0.0
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()

    @contextmanager
    def step(self, title: str, estimate_seconds: float) -> Iterator[None]:
        finished = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(title, finished), daemon=True)
        if self._live:
            ticker.start()
        else:
            self._write_line(f"{self._position()} {title} ({self._clock()})")
        try:
            yield
        finally:
            finished.set()
            if self._live:
                ticker.join(timeout=5 * REFRESH_SECONDS)
            self._done_steps += 1
            self._done_seconds += estimate_seconds

    def note(self, text: str) -> None:
        self._write_line(text)

    def close(self) -> None:
        """Clear the live line, so that the next output begins on an empty line."""
        if self._live:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def _tick(self, title: str, finished: threading.Event) -> None:
        while True:
            filled = int(BAR_WIDTH * self._done_seconds / self._estimate_seconds) if self._estimate_seconds else 0
            bar = "█" * filled + "░" * (BAR_WIDTH - filled)
            sys.stderr.write(f"{CLEAR_LINE}{bar} {self._position()} {title} · {self._clock()}")
            sys.stderr.flush()
            if finished.wait(REFRESH_SECONDS):
                return

    def _position(self) -> str:
        return f"[{self._done_steps + 1}/{self._steps}]"

    def _clock(self) -> str:
        elapsed = time.monotonic() - self._started
        pace = elapsed / self._done_seconds if self._done_seconds else 1.0
        total = max(elapsed, self._estimate_seconds * pace)
        return f"{_minutes(elapsed)} of about {_minutes(total)}"

    def _write_line(self, text: str) -> None:
        clear = CLEAR_LINE if self._live else ""
        sys.stderr.write(f"{clear}{text}\n")
        sys.stderr.flush()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

"""Shows the progress of a long operation: as a bar on a terminal, otherwise as a line every ten seconds."""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

BAR_INTERVAL_SECONDS = 0.1
LINE_INTERVAL_SECONDS = 10.0
BAR_CELLS_MAX = 30
ERASE_LINE = "\r\x1b[2K"
_UNITS = ("kB", "MB", "GB", "TB", "PB")


class Progress:
    """Shows how many of `total_bytes` are processed. Prints nothing if `is_shown` is False. `close` erases the bar.

    To count in another unit than bytes, pass `amount_text`, which formats an amount as text. If the operation began
    before this object was created, pass its beginning by the clock `monotonic`, so that the rate is right.
    """

    def __init__(
        self,
        what: str,
        total_bytes: int,
        stream: TextIO,
        *,
        is_shown: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        amount_text: Callable[[int], str] | None = None,
        began: float | None = None,
    ) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._stream = stream
        self._is_bar = stream.isatty()
        self._is_shown = is_shown
        self._monotonic = monotonic
        self._amount_text = amount_text or size_text
        now = monotonic()
        self._started = now if began is None else began
        # The bar is drawn immediately. The first line is printed after LINE_INTERVAL_SECONDS, so short operations print
        # no line.
        self._due = now if self._is_bar else self._started + LINE_INTERVAL_SECONDS
        self._is_drawn = False

    def show(self, done_bytes: int) -> None:
        """Show this amount. Frequent calls are cheap, because the bar is drawn at most ten times per second."""
        now = self._monotonic()
        if not self._is_shown or now < self._due:
            return
        if self._is_bar:
            self._stream.write(ERASE_LINE + fitting(self._bar(done_bytes, now)))
            self._is_drawn = True
        else:
            self._stream.write(f"{self._what}: {self._facts(done_bytes, now)}\n")
        self._stream.flush()
        self._due = now + (BAR_INTERVAL_SECONDS if self._is_bar else LINE_INTERVAL_SECONDS)

    def close(self) -> None:
        if self._is_drawn:
            self._stream.write(ERASE_LINE)
            self._stream.flush()
            self._is_drawn = False

    def _bar(self, done_bytes: int, now: float) -> str:
        filled = BAR_CELLS_MAX * self._share(done_bytes) // 100
        return f"{self._what} [{'#' * filled}{'.' * (BAR_CELLS_MAX - filled)}] {self._facts(done_bytes, now)}"

    def _facts(self, done_bytes: int, now: float) -> str:
        text = self._amount_text
        if done_bytes > self._total_bytes:
            return text(done_bytes)  # The total was an estimate and too low, so a percentage would be wrong.
        facts = f"{self._share(done_bytes):3d}%  {text(done_bytes)} of {text(self._total_bytes)}"
        seconds = now - self._started
        if not done_bytes or seconds <= 0:
            return facts
        rate = done_bytes / seconds
        left = (self._total_bytes - done_bytes) / rate
        shown_rate = text(int(rate)) if rate >= 1 else f"<{text(1)}"
        return f"{facts}  {shown_rate}/s  {duration_text(left)} left"

    def _share(self, done_bytes: int) -> int:
        return min(100, 100 * done_bytes // self._total_bytes) if self._total_bytes else 100


def fitting(text: str) -> str:
    """Return the text, truncated to the width of the terminal."""
    return text[: shutil.get_terminal_size().columns - 1]


def size_text(size_bytes: int) -> str:
    """Return a size as text with its unit. Example: 1234567 is "1.2 MB"."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in _UNITS:
        size /= 1000
        if size < 999.95 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """Return a duration as text with its units. Example: 75 is "1 min 15 s"."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

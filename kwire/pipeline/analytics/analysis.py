"""What an analysis is asked for: spans of time, as people write them (500ms, 30s, 5m, 2h, 1d), and how many rooms."""

import argparse
import re
from dataclasses import dataclass

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
SPAN_MS_MAX = 366 * _UNITS_MS["d"]
# An event is counted in each window that it falls into.
WINDOWS_PER_EVENT_MAX = 120
TOP_MAX = 1000


@dataclass(frozen=True, slots=True)
class Analysis:
    """Windows of `window_ms` begin every `slide_ms`; a session ends after `gap_ms` without an event.

    Events may come `lateness_ms` behind the newest one and still count. The `top` rooms are told of each window.
    """

    window_ms: int
    slide_ms: int
    lateness_ms: int
    gap_ms: int
    top: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.top <= TOP_MAX:
            raise ValueError(f"--top takes 1 to {TOP_MAX} rooms, not {self.top}")
        if min(self.window_ms, self.slide_ms, self.gap_ms) < 1:
            raise ValueError("a window, its slide and the gap between sessions take at least a millisecond")
        if self.window_ms % self.slide_ms:
            raise ValueError(
                f"windows of {span_text(self.window_ms)} cannot begin every {span_text(self.slide_ms)}: "
                "the window must be a whole number of slides"
            )
        if self.window_ms // self.slide_ms > WINDOWS_PER_EVENT_MAX:
            raise ValueError(
                f"each event would be counted in {self.window_ms // self.slide_ms} windows; "
                f"{WINDOWS_PER_EVENT_MAX} is the most, take a longer --slide"
            )


def span_ms(text: str) -> int:
    """What an argument such as `30s` means; made for argparse."""
    match = _SPAN.fullmatch(text)
    if match is None or (value := int(match[1]) * _UNITS_MS[match[2]]) > SPAN_MS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time such as 500ms, 30s, 5m, 2h or 1d")
    return value


def span_text(span: int) -> str:
    """The shortest way to write it: 60000 is `1m`."""
    unit = max((each for each in _UNITS_MS if not span % _UNITS_MS[each]), key=lambda each: _UNITS_MS[each])
    return f"{span // _UNITS_MS[unit]}{unit}"


def interval(span: int) -> str:
    """As Spark takes it."""
    return f"{span} milliseconds"

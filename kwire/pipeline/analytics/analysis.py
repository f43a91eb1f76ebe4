"""The parameters of an analysis: durations (500ms, 30s, 5m, 2h, 1d) and the number of top rooms."""

import argparse
import re
from dataclasses import dataclass

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
SPAN_MS_MAX = 366 * _UNITS_MS["d"]
# The maximum number of overlapping windows that contain the same event.
WINDOWS_PER_EVENT_MAX = 120
TOP_MAX = 1000


@dataclass(frozen=True, slots=True)
class Analysis:
    """The parameters of an analysis.

    A window of `window_ms` starts every `slide_ms`. A session ends after `gap_ms` without an event. An event is
    included if it is at most `lateness_ms` older than the newest event. `top` is the maximum number of rooms in the
    list of rooms with the most events.
    """

    window_ms: int
    slide_ms: int
    lateness_ms: int
    gap_ms: int
    top: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.top <= TOP_MAX:
            raise ValueError(f"--top: must be from 1 to {TOP_MAX}, got {self.top}")
        if min(self.window_ms, self.slide_ms, self.gap_ms) < 1:
            raise ValueError("--window, --slide and --session-gap must be at least 1ms")
        if self.window_ms % self.slide_ms:
            raise ValueError(
                f"--window {span_text(self.window_ms)}: must be a multiple of --slide {span_text(self.slide_ms)}"
            )
        if self.window_ms // self.slide_ms > WINDOWS_PER_EVENT_MAX:
            raise ValueError(
                f"each event would be counted in {self.window_ms // self.slide_ms} windows; "
                f"the maximum is {WINDOWS_PER_EVENT_MAX}: use a longer --slide"
            )


def span_ms(text: str) -> int:
    """Convert a duration such as `30s` to milliseconds. Used as a type for argparse."""
    match = _SPAN.fullmatch(text)
    if match is None or (value := int(match[1]) * _UNITS_MS[match[2]]) > SPAN_MS_MAX:
        raise argparse.ArgumentTypeError(f"expected a duration such as 500ms, 30s, 5m, 2h or 1d, got {text!r}")
    return value


def span_text(span: int) -> str:
    """Return a duration as its shortest text. Example: 60000 is `1m`."""
    unit = max((each for each in _UNITS_MS if not span % _UNITS_MS[each]), key=lambda each: _UNITS_MS[each])
    return f"{span // _UNITS_MS[unit]}{unit}"


def interval(span: int) -> str:
    """Return a duration in Spark's notation."""
    return f"{span} milliseconds"

"""The times and durations that users write: 2026-01-31T12:00:00Z, 10m, P1DT2H."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

TIME_EXPECTED = "a time such as 2026-01-31T12:00:00Z, or an age such as 10m"
DURATION_EXPECTED = "a duration such as 90s, 10m, 2h, 7d or P1DT2H"
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(\d{1,15})(ms|s|m|h|d|w)", re.ASCII)
# Kafka's tools use this format of ISO 8601.
_LONG = re.compile(
    r"P(?:(?P<d>\d{1,9})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH_MS = re.compile(r"@(\d{1,18})", re.ASCII)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds. Raises ValueError."""
    if match := _SHORT.fullmatch(text.strip()):
        return int(match[1]) * _UNITS_MS[match[2]]
    match = _LONG.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"expected {DURATION_EXPECTED}, got {text!r}")
    return round(sum(float(amount) * _UNITS_MS[unit] for unit, amount in match.groupdict().items() if amount))


def parse_time(text: str, now: Callable[[], int] = now_ms) -> int:
    """Return a time in milliseconds since 1970. A time without a zone is UTC. Raises ValueError."""
    if match := _EPOCH_MS.fullmatch(text.strip()):
        return int(match[1])
    if _SHORT.fullmatch(text.strip()):
        return max(0, now() - parse_duration(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"expected {TIME_EXPECTED}, got {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def time_text(time_ms: int) -> str | None:
    """Return a time as text, in UTC. Return None for times that are unknown (-1)."""
    if time_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"@{time_ms}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(duration_ms: int) -> str:
    """Return a duration in its largest units: 90 s, 12 min, 3.5 h, 2.1 d."""
    seconds = duration_ms / 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"

"""The two formats of log lines: text for people, and JSON for programs that collect logs.

Times are local, in ISO 8601 with the offset of the time zone. Texts of clients may be part of a message. So control
characters are escaped, further lines of a message are indented, and long messages are shortened: no client can forge a
line or change the terminal of the operator.
"""

import logging
import re
from datetime import datetime
from types import TracebackType

import msgspec

from kwire.logs.log_context import fields_of

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)

# Longer messages, field values and tracebacks are shortened.
MESSAGE_LENGTH_MAX = 10_000
VALUE_LENGTH_MAX = 1_000
TRACEBACK_LENGTH_MAX = 20_000

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_INDENT = "    "
# ANSI colours of the levels. Lines of other levels have none.
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
_DIM, _RESET = "\x1b[2m", "\x1b[0m"

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def time_text(created: float) -> str:
    """Return a time as ISO 8601 with milliseconds and the offset of the local time zone."""
    return datetime.fromtimestamp(created).astimezone().isoformat(timespec="milliseconds")


class TextFormat(logging.Formatter):
    """Formats lines for people: `2026-11-18T09:30:00.250+01:00 WARNING kwire.server: message (field=value)`."""

    def __init__(self, *, has_colour: bool) -> None:
        super().__init__()
        self._has_colour = has_colour

    def format(self, record: logging.LogRecord) -> str:
        time, level = time_text(record.created), record.levelname
        if self._has_colour:
            time = f"{_DIM}{time}{_RESET}"
            colour = _COLOURS.get(record.levelno)
            level = level if colour is None else f"{colour}{level}{_RESET}"
        text = f"{time} {level} {record.name}: {_clean(record.getMessage(), MESSAGE_LENGTH_MAX)}{_shown_fields(record)}"
        if record.exc_info:
            text += "\n" + _clean(self.formatException(record.exc_info), TRACEBACK_LENGTH_MAX)
        return text.replace("\n", "\n" + _INDENT)


class JsonFormat(logging.Formatter):
    """Formats a line as one JSON object: `time`, `level`, `logger`, `message`, further fields, `error`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time_text(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _clean(record.getMessage(), MESSAGE_LENGTH_MAX),
        }
        for name, value in fields_of(record).items():
            line.setdefault(name, _clean(value, VALUE_LENGTH_MAX) if isinstance(value, str) else value)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = {
                "type": type(error).__name__,
                "message": _clean(str(error), MESSAGE_LENGTH_MAX),
                "traceback": _clean(self.formatException(record.exc_info), TRACEBACK_LENGTH_MAX),
            }
        return msgspec.json.encode(line, enc_hook=str).decode()


def _shown_fields(record: logging.LogRecord) -> str:
    fields = fields_of(record)
    if not fields:
        return ""
    shown = ", ".join(f"{name}={_clean(str(value), VALUE_LENGTH_MAX)}" for name, value in fields.items())
    return f" ({shown})"


def _clean(text: str, length_max: int) -> str:
    """Escape control characters other than line breaks, and shorten a long text."""
    if len(text) > length_max:
        text = text[:length_max] + "…"
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)

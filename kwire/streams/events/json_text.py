"""JSON as bytes: checked when it is published, shown when it is read, and stored as it was written."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from kwire.broker.events.json_limits import is_within_limits, limit_broken
from kwire.errors import InvalidEvent

# Values up to this size are decoded to check them.
DECODED_BYTES_MAX = 1024


class _Msgspec:
    """What is used of msgspec, loaded with the first event: that takes longer than to load all of the broker."""

    check_grammar: Callable[[bytes], object]
    format: Callable[..., bytes]
    decode: Callable[[bytes], object]
    encode: Callable[[object], bytes]
    DecodeError: type[Exception]
    ValidationError: type[Exception]

    def __getattr__(self, name: str) -> Any:
        import msgspec

        # Of a value that is kept raw everything is checked but its UTF-8.
        self.check_grammar = msgspec.json.Decoder(msgspec.Raw).decode
        self.format = msgspec.json.format
        self.decode = msgspec.json.Decoder().decode
        self.encode = msgspec.json.Encoder().encode
        self.DecodeError = msgspec.DecodeError
        self.ValidationError = msgspec.ValidationError
        return self.__dict__[name]


_msgspec = _Msgspec()


class _BeyondLimits(Exception):
    """JSON that some reader cannot read."""


def _check(raw: bytes, bytes_max: int | None = None) -> None:
    """Raise msgspec.DecodeError, UnicodeDecodeError, RecursionError or _BeyondLimits unless readers can read this.

    Of a value above `bytes_max` only the grammar is checked.
    """
    if len(raw) <= DECODED_BYTES_MAX:
        # This finds every fault, and takes no longer than to look for numbers that are too large.
        _msgspec.decode(raw)
        return
    if not raw.isascii():
        raw.decode()
    _msgspec.check_grammar(raw)
    if (bytes_max is None or len(raw) <= bytes_max) and not is_within_limits(raw):
        raise _BeyondLimits


def checked_json(raw: bytes, field: str = "data", stored_bytes_max: int | None = None) -> bytes:
    """The same JSON value without spaces around and between its parts; numbers stay as they were written.

    A value above `stored_bytes_max` will be refused by the log for its size, so its limits are not looked at, which
    might take long.

    Raises InvalidEvent, which names the field, for bytes that are not JSON or not UTF-8 and for JSON that some reader
    cannot read (`json_limits`).
    """
    try:
        # Split where the first space is: what has none, also in front and behind, stays in one piece.
        if not raw or raw.split(None, 1)[0:1] == [raw]:
            _check(raw, stored_bytes_max)
            return bytes(raw)
        if not raw.isascii():
            raw.decode()
        compact: bytes = _msgspec.format(raw, indent=-1)
        _check(compact, stored_bytes_max)
        return compact
    except (_BeyondLimits, RecursionError, _msgspec.ValidationError):
        problem = limit_broken(raw, field)
    except UnicodeDecodeError:
        problem = f"{field} is not UTF-8: byte {_first_bad_byte(raw)}"
    except _msgspec.DecodeError as error:
        problem = f"{field} is not JSON: {error}"
    raise InvalidEvent(problem)


def _first_bad_byte(raw: bytes) -> int | None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def shown_json(value: bytes | None) -> bytes:
    """The value of any record as JSON without line breaks: itself, a text, `{"base64": …}` or null.

    JSON that some reader cannot read (`json_limits`) is shown as a text.
    """
    if value is None:
        return b"null"
    try:
        # Checked whoever wrote it: these bytes go into frames and lines that others parse.
        _check(value)
        return _msgspec.format(value, indent=-1) if b"\n" in value or b"\r" in value else value
    except (_msgspec.DecodeError, RecursionError, UnicodeDecodeError, _BeyondLimits):
        pass
    try:
        return _msgspec.encode(value.decode())
    except UnicodeDecodeError:
        return b'{"base64":"' + b64encode(value) + b'"}'

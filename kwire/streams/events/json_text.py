"""JSON values as bytes: checked when they are published, and shown as valid JSON when they are read."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from kwire.errors import InvalidEvent
from kwire.streams.events.json_limits import is_within_limits, limit_broken

# Values up to this size are decoded to check them.
DECODED_BYTES_MAX = 1024


class _Msgspec:
    """The functions of msgspec that this module uses.

    They are imported with the first event, because importing msgspec takes longer than importing all of the broker.
    """

    check_grammar: Callable[[bytes], object]
    format: Callable[..., bytes]
    decode: Callable[[bytes], object]
    encode: Callable[[object], bytes]
    DecodeError: type[Exception]
    ValidationError: type[Exception]

    def __getattr__(self, name: str) -> Any:
        import msgspec

        # Decoding to Raw checks everything except UTF-8.
        self.check_grammar = msgspec.json.Decoder(msgspec.Raw).decode
        self.format = msgspec.json.format
        self.decode = msgspec.json.Decoder().decode
        self.encode = msgspec.json.Encoder().encode
        self.DecodeError = msgspec.DecodeError
        self.ValidationError = msgspec.ValidationError
        return self.__dict__[name]


_msgspec = _Msgspec()


class _BeyondLimits(Exception):
    """JSON that some JSON parsers cannot read."""


def _check(raw: bytes, bytes_max: int | None = None) -> None:
    """Check that JSON parsers can read a value.

    Raises DecodeError, UnicodeDecodeError, RecursionError or _BeyondLimits. For a value larger than `bytes_max`, only
    the grammar is checked.
    """
    if len(raw) <= DECODED_BYTES_MAX:
        # Decoding finds every error, and takes no longer than a search for numbers that are too large.
        _msgspec.decode(raw)
        return
    if not raw.isascii():
        raw.decode()
    _msgspec.check_grammar(raw)
    if (bytes_max is None or len(raw) <= bytes_max) and not is_within_limits(raw):
        raise _BeyondLimits


def checked_json(raw: bytes, field: str = "data", stored_bytes_max: int | None = None) -> bytes:
    """Check a JSON value, and return it without insignificant whitespace. Numbers keep their notation.

    If the value is larger than `stored_bytes_max`, the log will refuse it. Then the limits of `json_limits` are not
    checked, because this check may take long.

    Raises InvalidEvent if the bytes are not JSON or not UTF-8, or if some parsers cannot read the JSON (`json_limits`).
    The message names `field`.
    """
    try:
        # `split` returns the value itself if there is no whitespace in or around it.
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
    """Return the value of any record as JSON without line breaks.

    Valid JSON is returned as it is, except for line breaks. Other text is returned as a string, and other bytes as
    `{"base64": …}`. A missing value is returned as null. JSON that some parsers cannot read (`json_limits`) is returned
    as a string.
    """
    if value is None:
        return b"null"
    try:
        # Every record has to be checked, because Kafka producers can store any bytes and clients parse the result.
        _check(value)
        return _msgspec.format(value, indent=-1) if b"\n" in value or b"\r" in value else value
    except (_msgspec.DecodeError, RecursionError, UnicodeDecodeError, _BeyondLimits):
        pass
    try:
        return _msgspec.encode(value.decode())
    except UnicodeDecodeError:
        return b'{"base64":"' + b64encode(value) + b'"}'

"""JSON as bytes: checked when it is published, shown when it is read, and never made into objects."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from kwire.errors import InvalidEvent

# JSON that nests deeper than the stack allows cannot be checked. What is published leaves so many levels for those who
# read it from a deeper place; only what has many brackets is looked at so closely.
_DEPTH_LEFT = 100
_BRACKETS_SUSPICIOUS = 500


class _Msgspec:
    """What is used of msgspec, loaded with the first event: that takes longer than to load all of the broker."""

    check_grammar: Callable[[bytes], object]
    format: Callable[..., bytes]
    encode: Callable[[object], bytes]
    DecodeError: type[Exception]

    def __getattr__(self, name: str) -> Any:
        import msgspec

        # Of a value that is kept raw everything is checked but its UTF-8.
        self.check_grammar = msgspec.json.Decoder(msgspec.Raw).decode
        self.format = msgspec.json.format
        self.encode = msgspec.json.Encoder().encode
        self.DecodeError = msgspec.DecodeError
        return self.__dict__[name]


_msgspec = _Msgspec()


def checked_json(raw: bytes) -> bytes:
    """The same JSON value without spaces around and between its parts; numbers stay as they were written.

    Raises InvalidEvent for what is no JSON, no UTF-8, or nested too deep.
    """
    try:
        if not raw.isascii():
            raw.decode()
        _msgspec.check_grammar(raw)
        if len(raw) > _BRACKETS_SUSPICIOUS and raw.count(b"[") + raw.count(b"{") > _BRACKETS_SUSPICIOUS:
            _msgspec.check_grammar(b"[" * _DEPTH_LEFT + raw + b"]" * _DEPTH_LEFT)
        # Split where the first space is: what has none, also in front and behind, stays in one piece.
        return bytes(raw) if raw.split(None, 1)[0] == raw else _msgspec.format(raw, indent=-1)
    except RecursionError:
        raise InvalidEvent("the data is nested too deep") from None
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"the data is not UTF-8: byte {error.start}") from None
    except _msgspec.DecodeError as error:
        raise InvalidEvent(f"the data is not JSON: {error}") from None


def shown_json(value: bytes | None) -> bytes:
    """The value of any record as JSON without line breaks: itself, a text, `{"base64": …}` or null."""
    if value is None:
        return b"null"
    try:
        # Checked whoever wrote it: these bytes go into frames and lines that others parse.
        _msgspec.check_grammar(value)
        if value.isascii() or value.decode():
            return _msgspec.format(value, indent=-1) if b"\n" in value or b"\r" in value else value
    except (_msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return _msgspec.encode(value.decode())
    except UnicodeDecodeError:
        return b'{"base64":"' + b64encode(value) + b'"}'

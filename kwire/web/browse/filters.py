"""Filters of records. A record must pass all parts of a filter. Texts are compared as UTF-8 bytes, with upper and lower
case.

- `key`, `value`: the key or the value contains the text
- headers: the record has a header of this name whose value contains the text. With an empty text, the header exists.
- `path`: the value is JSON, and the path (`json_path.py`) selects at least one part that passes `equals` or `contains`

There are no regular expressions, because matching them may take very long.

`may_match` is a cheap test on the encoded bytes of records: it never refuses bytes with a record that passes. It is
used for whole batches first, so that most batches are not decoded if few records pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kwire.web.browse.json_path import JsonPath

NEEDLE_LENGTH_MAX = 1_000
HEADER_FILTERS_MAX = 10
# Larger values are not decoded, because decoding them takes several milliseconds. They do not pass a path.
DECODED_BYTES_MAX = 1024 * 1024

Headers = Sequence[tuple[str, bytes | None]]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NOT_SCALAR = object()
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")


class PathTest(NamedTuple):
    """The part of a filter that concerns the members of a JSON value. With neither text, the path must select a part.

    `equals`: a part is the text, or is the number, boolean or null that the text stands for. `contains`: a part is a
    text that contains this text, or a number or boolean whose JSON does.
    """

    path: JsonPath
    equals: str | None = None
    contains: str | None = None

    def literals(self) -> list[str]:
        """Return texts that every value that passes has, in its JSON. Escapes may hide them."""
        found = [*self.path.names]
        # A number may be written in several ways, so its text is not searched.
        if self.equals is not None:
            wanted = _scalar(self.equals)
            if isinstance(wanted, str):
                found.append(wanted)
            elif isinstance(wanted, bool) or not isinstance(wanted, int | float):
                found.append(self.equals)
        elif self.contains is not None and set(self.contains) - _NUMBER_CHARACTERS:
            found.append(self.contains)
        return found

    def passes(self, value: bytes) -> bool:
        try:
            decoded = _decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        selected = self.path.select(decoded)
        if self.equals is not None:
            wanted = _scalar(self.equals)
            return any(_is_equal(one, self.equals, wanted) for one in selected)
        if self.contains is not None:
            return any(_contains(one, self.contains) for one in selected)
        return bool(selected)


class RecordFilter:
    """The filter of a scan. An empty filter passes every record."""

    __slots__ = ("_headers", "_key", "_literals", "_needles", "_value", "is_empty", "path")

    def __init__(
        self,
        key: str | None = None,
        value: str | None = None,
        headers: Mapping[str, str] | None = None,
        path: PathTest | None = None,
    ) -> None:
        self._key = None if key is None else key.encode()
        self._value = None if value is None else value.encode()
        self._headers = tuple((name, text.encode()) for name, text in (headers or {}).items())
        self.path = path
        needles = [one for one in (self._key, self._value) if one]
        needles += [part for name, text in self._headers for part in (name.encode(), text) if part]
        # A longer text is less frequent, so it is searched first.
        self._needles = tuple(sorted(needles, key=len, reverse=True))
        # These texts occur in the bytes of a value that passes the path, unless they are written with escapes.
        self._literals = () if path is None else tuple(text.encode() for text in path.literals() if _is_plain(text))
        self.is_empty = not (needles or self._headers or path is not None)

    def may_match(self, body: bytes, start: int, end: int) -> bool:
        """Return False if no record in these bytes of uncompressed records can pass."""
        for needle in self._needles:
            if body.find(needle, start, end) < 0:
                return False
        for literal in self._literals:
            if body.find(literal, start, end) < 0:
                return body.find(b"\\", start, end) >= 0
        return True

    def passes(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        if self._key is not None and (key is None or self._key not in key):
            return False
        if self._value is not None and (value is None or self._value not in value):
            return False
        for name, needle in self._headers:
            if not any(name == one and (not needle or (text is not None and needle in text)) for one, text in headers):
                return False
        if self.path is None:
            return True
        return value is not None and len(value) <= DECODED_BYTES_MAX and self.path.passes(value)


def _is_plain(name: str) -> bool:
    """Return whether a JSON encoder that escapes only what it must writes the name as it is."""
    return bool(name) and _encode(name) == b'"%b"' % name.encode()


def _scalar(text: str) -> Any:
    """Return the JSON number, text, boolean or null in `text`; else an object that equals nothing."""
    try:
        found = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOT_SCALAR
    return _NOT_SCALAR if isinstance(found, dict | list) else found


def _is_equal(part: Any, text: str, wanted: Any) -> bool:
    if part == text:
        return True
    # In Python, True equals 1.
    return part == wanted and isinstance(part, bool) == isinstance(wanted, bool)


def _contains(part: Any, text: str) -> bool:
    if isinstance(part, str):
        return text in part
    return isinstance(part, bool | int | float) and text in _encode(part).decode()

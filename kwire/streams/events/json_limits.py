"""Limits of JSON values that common parsers can read: integers of 4,300 digits, the range of a double, nesting depth.

The grammar of JSON has no such limits. Python refuses longer integers, and nesting beyond its recursion limit. Go, Rust
and msgspec refuse a number like 1e400. Python and JavaScript read this number as Infinity, which cannot be written as
JSON. A consumer that cannot parse such a value is stuck at the offset of that record.

The checks run on the bytes of a value. The caller has already checked its grammar. Only a value that might exceed a
limit is examined in detail, which takes at most about 25 ms per megabyte.
"""

import json
from itertools import accumulate
from math import isinf

# Python and Jackson allow 1,000 levels. The limit is lower, because a reader nests the value in other objects and uses
# a part of the recursion limit itself.
DEPTH_MAX = 512

# Python's sys.int_info.default_max_str_digits. msgspec counts the sign as a digit.
INTEGER_DIGITS_MAX = 4300

# A number with fewer than this many digits before the decimal point and an exponent of at most two digits is below
# 1e299, so it fits in a double.
_SAFE_DIGITS = 200
# If the value is larger than this, the error message does not name the path of the number, because finding the path
# takes as long as decoding the value.
_LOCATED_BYTES_MAX = 64 * 1024

_DIGITS = b"0123456789"
_OPENING, _CLOSING = b"[{", b"]}"
# Maps digits and `+` to 0, and E to e. After this mapping, a number that may be too large contains `0e000` or a long
# run of zeros.
_AS_ZEROS = bytes(ord("0") if byte in _DIGITS + b"+" else ord("e") if byte == ord("E") else byte for byte in range(256))
_LARGE_EXPONENT = b"0e000"
_LONG_RUN = b"0" * _SAFE_DIGITS
_NUMBERS_ALONE = bytes(byte if byte in _DIGITS + b".eE+-" else ord(" ") for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in _OPENING + _CLOSING)
# Signed bytes: +1 for an opening bracket, -1 for a closing one.
_LEVELS = bytes(1 if byte in _OPENING else 255 if byte in _CLOSING else 0 for byte in range(256))


def is_within_limits(raw: bytes) -> bool:
    """Return whether all common parsers can read this JSON value."""
    return not _has_large_number(raw) and not _is_deep(raw)


def limit_broken(raw: bytes, field: str) -> str:
    """Return the error message for a JSON value that exceeds a limit. It begins with the path of the invalid part."""
    if _has_large_number(raw):
        path = _path_of_large_number(raw, field) if len(raw) <= _LOCATED_BYTES_MAX else field
        return (
            f"{path}: a number has more than {INTEGER_DIGITS_MAX} digits or is beyond the range of a double "
            "(about 1.8e308), which JSON parsers cannot read; send it as a string"
        )
    return f"{field}: the JSON is nested deeper than {DEPTH_MAX} levels"


def _has_large_number(raw: bytes) -> bool:
    if not _may_have_large_number(raw):
        return False
    outside = _without_strings(raw)
    if not _may_have_large_number(outside):
        return False
    numbers = outside.replace(b"true", b"").replace(b"false", b"").translate(_NUMBERS_ALONE).split()
    if len(max(numbers, key=len)) > INTEGER_DIGITS_MAX and any(map(_is_long_integer, numbers)):
        return True
    return not _are_readable(b"[%b]" % b",".join(numbers))


def _is_long_integer(number: bytes) -> bool:
    return len(number) > INTEGER_DIGITS_MAX and number.removeprefix(b"-").isdigit()


def _may_have_large_number(raw: bytes) -> bool:
    alike = raw.translate(_AS_ZEROS)
    return _LARGE_EXPONENT in alike or (len(alike) >= _SAFE_DIGITS and _LONG_RUN in alike)


def _are_readable(array: bytes) -> bool:
    import msgspec  # imported late: it takes long to load, and most servers never need it here

    try:
        msgspec.json.decode(array)
    except msgspec.ValidationError:
        return False
    return True


def _is_deep(raw: bytes) -> bool:
    if len(raw) <= 2 * DEPTH_MAX or raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return False
    levels = _without_strings(raw).translate(_LEVELS, _NOT_BRACKETS)
    return max(accumulate(memoryview(levels).cast("b")), default=0) > DEPTH_MAX


def _without_strings(raw: bytes) -> bytes:
    """Return a JSON text without the contents of its strings."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2])


class _Large:
    """Placeholder for a number that is too large."""


def _integer(text: str) -> object:
    return _Large() if len(text) > INTEGER_DIGITS_MAX else None


def _float(text: str) -> object:
    return _Large() if isinf(float(text)) else None


def _path_of_large_number(raw: bytes, field: str) -> str:
    """Return the path of a number that is too large, such as `data.lines[3].price`."""
    try:
        value = json.loads(raw, parse_int=_integer, parse_float=_float)
    except RecursionError:
        return field
    left: list[tuple[str, object]] = [(field, value)]
    while left:
        path, value = left.pop()
        if isinstance(value, _Large):
            return path
        if isinstance(value, dict):
            left += [(f"{path}.{name}", below) for name, below in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", below) for index, below in enumerate(value)]
    return field

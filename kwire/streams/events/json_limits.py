"""What JSON may hold so that readers can read it: integers of 4,300 digits, numbers within a double, bounded nesting.

The grammar of JSON allows more. Python refuses a longer integer and nesting beyond its recursion limit; Go, Rust and
msgspec refuse a number like 1e400, and Python and JavaScript read it as Infinity, which cannot be written again. One
such value would stop every reader at its offset.

The checks run on the bytes of a value whose grammar was checked. Only a value that might break a limit is looked at
more closely, which takes at most some 25 ms for each megabyte.
"""

import json
from itertools import accumulate
from math import isinf

# Recursion limits are 1,000 levels in Python and in Jackson; a reader wraps the value and has frames of its own.
DEPTH_MAX = 512

# Of an integer: sys.int_info.default_max_str_digits of Python. msgspec counts a sign among them.
INTEGER_DIGITS_MAX = 4300

# A number with fewer digits before its point than this needs an exponent of three digits to exceed a double.
_SAFE_DIGITS = 200
# Larger values are refused without the path of the number in them: to find it takes as long as to decode the value.
_LOCATED_BYTES_MAX = 64 * 1024

_DIGITS = b"0123456789"
_OPENING, _CLOSING = b"[{", b"]}"
# Digits and the sign of an exponent as 0, E as e: a number that might be too large becomes `0e000` or a run of zeros.
_AS_ZEROS = bytes(ord("0") if byte in _DIGITS + b"+" else ord("e") if byte == ord("E") else byte for byte in range(256))
_LARGE_EXPONENT = b"0e000"
_LONG_RUN = b"0" * _SAFE_DIGITS
_NUMBERS_ALONE = bytes(byte if byte in _DIGITS + b".eE+-" else ord(" ") for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in _OPENING + _CLOSING)
# As signed bytes: one level more, one level less.
_LEVELS = bytes(1 if byte in _OPENING else 255 if byte in _CLOSING else 0 for byte in range(256))


def is_within_limits(raw: bytes) -> bool:
    """Whether every reader can read this JSON value."""
    return not _has_large_number(raw) and not _is_deep(raw)


def limit_broken(raw: bytes, field: str) -> str:
    """Which limit a JSON value breaks that is not within them: a sentence that begins with the place of the fault."""
    if _has_large_number(raw):
        place = _place_of_large_number(raw, field) if len(raw) <= _LOCATED_BYTES_MAX else field
        return (
            f"{place}: a number has more than {INTEGER_DIGITS_MAX} digits or is beyond the range of a double "
            "(about 1.8e308), so readers of JSON cannot hold it; send it as a string"
        )
    return f"{field}: JSON may be nested {DEPTH_MAX} levels deep, and this is nested deeper"


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
    import msgspec  # takes long to load, and most servers never need it here

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
    """A JSON text without the content of its strings."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.split(b'"')[::2])


class _Large:
    """Stands for a number that is too large."""


def _integer(text: str) -> object:
    return _Large() if len(text) > INTEGER_DIGITS_MAX else None


def _float(text: str) -> object:
    return _Large() if isinf(float(text)) else None


def _place_of_large_number(raw: bytes, field: str) -> str:
    """Like `data.lines[3].price`."""
    try:
        value = json.loads(raw, parse_int=_integer, parse_float=_float)
    except RecursionError:
        return field
    left: list[tuple[str, object]] = [(field, value)]
    while left:
        place, value = left.pop()
        if isinstance(value, _Large):
            return place
        if isinstance(value, dict):
            left += [(f"{place}.{name}", below) for name, below in value.items()]
        elif isinstance(value, list):
            left += [(f"{place}[{index}]", below) for index, below in enumerate(value)]
    return field

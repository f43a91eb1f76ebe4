"""JSON that some reader cannot read: refused when it is published, shown as text when it is read."""

import json
from math import isinf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import InvalidEvent
from kwire.streams.events.json_limits import DEPTH_MAX, INTEGER_DIGITS_MAX
from kwire.streams.events.json_text import DECODED_BYTES_MAX, checked_json, shown_json

# Below and above the size from which on values are not decoded to check them.
PADDINGS = [b"", b"x" * 2 * DECODED_BYTES_MAX]
UNREADABLE = [
    b"1" * (INTEGER_DIGITS_MAX + 1),
    b"-" + b"1" * 5000,
    b"1e400",
    b"-1E+400",
    b"1e309",
    b"2e308",
    b"0.001e312",
    b"1e99999999999999999999",
    b"1" * 400 + b".5",
    b"1" * 215 + b"e99",
    b"9" * 199 + b"e0110",
    b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
    b'["[",' * (DEPTH_MAX + 1) + b"1" + b"]" * (DEPTH_MAX + 1),
]
READABLE = [
    b"1" * INTEGER_DIGITS_MAX,
    b"-" + b"1" * (INTEGER_DIGITS_MAX - 1),
    b"1.7976931348623157e308",
    b"1e-400",
    b"1e+100",
    b"0e400",
    b"0." + b"1" * 5000,
    b"1" * 250 + b"e-200",
    b"1" * 5000 + b"e-4900",
    b'"' + b"1" * 5000 + b'"',
    b'"1e400"',
    b'"\\"1e400"',
    b'["\\\\","1e400\\\\",true,false,null]',
    b'{"1e400":"a0e999b"}',
    b'"' + b"[" * 2000 + b'"',
    b'["\\"[[[",' + b",".join([b'"' + b"[{" * 300 + b'"'] * 3) + b"]",
    b"[" * DEPTH_MAX + b"]" * DEPTH_MAX,
    b"[" + b",".join([b"[[],{}]"] * 3000) + b"]",
]


def finite(text: str) -> float:
    if isinf(float(text)):
        raise ValueError(f"{text} is infinite")
    return float(text)


def is_readable(raw: bytes) -> bool:
    """What a stock reader says: Python's, which must neither fail nor read an infinity."""
    try:
        # Of names that occur twice both values count.
        value = json.loads(raw, parse_float=finite, object_pairs_hook=lambda pairs: [one for _, one in pairs])
    except (ValueError, RecursionError):
        return False
    left: list[tuple[Any, int]] = [(value, 0)]
    while left:
        value, depth = left.pop()
        if isinstance(value, list):
            if depth == DEPTH_MAX:
                return False
            left += [(one, depth + 1) for one in value]
    return True


def padded(raw: bytes, padding: bytes) -> bytes:
    return b'{"padding":"%b","value":%b}' % (padding, raw) if padding else raw


@pytest.mark.parametrize("padding", PADDINGS, ids=["small", "large"])
@pytest.mark.parametrize("raw", UNREADABLE, ids=lambda raw: f"{raw[:20]!r}+{len(raw)}")
def test_what_a_reader_cannot_read_is_refused_and_shown_as_text(raw: bytes, padding: bytes) -> None:
    value = padded(raw, padding)
    with pytest.raises(InvalidEvent, match=r"^payload.*: (a number|the JSON is nested)"):
        checked_json(value, "payload")
    assert json.loads(shown_json(value)) == value.decode()


@pytest.mark.parametrize("padding", PADDINGS, ids=["small", "large"])
@pytest.mark.parametrize("raw", READABLE, ids=lambda raw: f"{raw[:20]!r}+{len(raw)}")
def test_what_readers_can_read_stays_as_it_was_written(raw: bytes, padding: bytes) -> None:
    # The padding would be one level more.
    value = raw if raw.startswith(b"[[[") else padded(raw, padding)
    assert is_readable(value)
    assert checked_json(value) == value
    assert shown_json(value) == value


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"1e999", "data"),
        (b'{"a":1,"lines":[{"price":1},{"price":1e999}]}', "data.lines[1].price"),
        (b'{"n":' + b"7" * 5000 + b"}", "data.n"),
    ],
)
def test_a_refusal_names_the_path(raw: bytes, path: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        checked_json(raw)
    assert refused.value.message.startswith(f"{path}: a number ")


def test_bytes_that_are_not_utf_8_are_named_by_their_place() -> None:
    with pytest.raises(InvalidEvent, match=r"^data is not UTF-8: byte 7$"):
        checked_json(b'{"a":"x\xff"}')


NUMBERS = st.builds(
    lambda sign, digits, zeros, fraction, exponent: (
        f"{sign}{digits}{'0' * zeros if digits != '0' else ''}{fraction}{exponent}".encode()
    ),
    st.sampled_from(["", "-"]),
    st.integers(0, 10**6).map(str),
    st.sampled_from([0, 3, 190, 300, 4200, 4301]),
    st.sampled_from(["", ".5", "." + "3" * 400]),
    st.sampled_from(["", "e3", "E99", "e+110", "e308", "e-308", "e0309", "e5000"]),
)
TEXTS = st.text(st.sampled_from('1e0+[]{}"\\,:x'), max_size=20).map(lambda text: json.dumps(text).encode())
VALUES = st.recursive(
    NUMBERS | TEXTS | st.sampled_from([b"true", b"false", b"null"]),
    lambda below: (
        st.lists(below, max_size=4).map(lambda parts: b"[%b]" % b",".join(parts))
        | st.lists(st.tuples(TEXTS, below), max_size=4).map(
            lambda pairs: b"{%b}" % b", ".join(b"%b: %b" % pair for pair in pairs)
        )
    ),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([0, 1, 500, 511, 512, 600]))
def test_the_check_says_what_a_stock_reader_says(value: bytes, depth: int) -> None:
    raw = b"[" * depth + value + b"]" * depth
    if is_readable(raw):
        assert json.loads(checked_json(raw)) == json.loads(raw)
        assert json.loads(shown_json(raw)) == json.loads(raw)
    else:
        with pytest.raises(InvalidEvent):
            checked_json(raw)
        assert json.loads(shown_json(raw)) == raw.decode()

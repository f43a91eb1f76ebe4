"""Filters of records: what passes, and that no part of a batch with a record that passes is skipped."""

import json
import os
import random
from typing import Any, NamedTuple

import pytest

from kwire.web.browse.filters import DECODED_BYTES_MAX, PathTest, RecordFilter
from kwire.web.browse.json_path import parse_path
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import Record, build_batch
from tests.support.effort import repetitions

Headers = list[tuple[str, bytes | None]]


def value_filter(path: str, equals: str | None = None, contains: str | None = None) -> RecordFilter:
    return RecordFilter(path=PathTest(parse_path(path), equals, contains))


def passes(
    tested: RecordFilter, value: str | bytes | None, key: bytes | None = None, headers: Headers | None = None
) -> bool:
    """Whether the record passes. If so, the test on its encoded bytes must not skip it."""
    raw = value.encode() if isinstance(value, str) else value
    found = tested.passes(key, raw, headers or [])
    body = bytes(build_batch([Record(key, raw, 0, headers or [])]))[HEADER_BYTES:]
    assert tested.may_match(body, 0, len(body)) or not found
    return found


def test_keys_and_values_contain_a_text() -> None:
    assert passes(RecordFilter(value="pen"), "a pen")
    assert not passes(RecordFilter(value="Pen"), "a pen"), "upper and lower case differ"
    assert passes(RecordFilter(value="zoë"), "hello zoë")
    assert passes(RecordFilter(value="pen"), b"\xff\x00pen\xff"), "also in bytes that are not text"
    assert not passes(RecordFilter(value="pen"), None, key=b"pen")
    assert passes(RecordFilter(key="pen"), None, key=b"pencil")
    assert not passes(RecordFilter(key="pen"), "pen"), "a null key"
    assert not passes(RecordFilter(key="a", value="b"), "b", key=b"b"), "all parts must pass"
    assert passes(RecordFilter(), None)


def test_headers_have_a_name_and_contain_a_text() -> None:
    headers: Headers = [("trace", b"abc"), ("trace", b"def"), ("empty", b""), ("null", None)]
    for name, text, expected in (
        ("trace", "b", True),
        ("trace", "e", True),
        ("trace", "x", False),
        ("Trace", "b", False),
        ("trac", "b", False),
        ("empty", "", True),
        ("null", "", True),
        ("null", "x", False),
        ("missing", "", False),
    ):
        assert passes(RecordFilter(headers={name: text}), "v", headers=headers) is expected, (name, text)
    assert passes(RecordFilter(headers={"trace": "abc", "empty": ""}), "v", headers=headers)


@pytest.mark.parametrize(
    ("value", "path", "equals", "expected"),
    [
        ('{"a": 5}', "$.a", "5", True),
        ('{"a": "5"}', "$.a", "5", True),
        ('{"a": 5}', "$.a", '"5"', False),
        ('{"a": "5"}', "$.a", '"5"', True),
        ('{"a": 5.0}', "$.a", "5", True),
        ('{"a": 5e0}', "$.a", "5", True),
        ('{"a": 1}', "$.a", "true", False),
        ('{"a": true}', "$.a", "true", True),
        ('{"a": true}', "$.a", "1", False),
        ('{"a": null}', "$.a", "null", True),
        ('{"a": [1, 2]}', "$.a[*]", "2", True),
        ('{"a": [1, 2]}', "$.a", "[1, 2]", False),
        ('{"a": "line\\nbreak"}', "$.a", "line\nbreak", True),
        ('{"\\u0061": "\\u0062"}', "$.a", "b", True),
        ('{"a": "x\\/y"}', "$.a", "x/y", True),
        ('{"a": "zo\\u00eb"}', "$.a", "zoë", True),
        ('{"a": "zoë"}', "$.a", "zoë", True),
        ('"whole"', "$", "whole", True),
        ("7", "$", "7", True),
        ("not json", "$", "not json", False),
        ('{"a": 1} trailing', "$.a", "1", False),
        ('{"a": 12345678901234567890123}', "$.b", "1", False),
        ("[" * 100_000, "$", "x", False),
    ],
)
def test_a_part_equals_a_text_or_a_scalar(value: str, path: str, equals: str, expected: bool) -> None:
    assert passes(value_filter(path, equals), value) is expected


def test_a_part_contains_a_text_or_exists() -> None:
    assert passes(value_filter("$.a", contains="en"), '{"a": "pen"}')
    assert passes(value_filter("$.a", contains="23"), '{"a": 1234}')
    assert passes(value_filter("$.a", contains="tru"), '{"a": true}')
    assert not passes(value_filter("$.a", contains="en"), '{"a": {"b": "pen"}}')
    assert not passes(value_filter("$.a", contains="en"), '{"b": "pen"}')
    assert passes(value_filter("$.a"), '{"a": null}')
    assert not passes(value_filter("$.a"), '{"b": 1}')
    assert not passes(value_filter("$.a"), None)
    assert not passes(value_filter("$"), b"\xff")


def test_values_above_the_bound_do_not_pass_a_path() -> None:
    assert passes(value_filter("$.a"), '{"a": "%s"}' % ("x" * (DECODED_BYTES_MAX - 9)))
    assert not passes(value_filter("$.a"), '{"a": "%s"}' % ("x" * (DECODED_BYTES_MAX - 8)))


# --- against a naive twin


class Wanted(NamedTuple):
    key: str | None
    value: str | None
    headers: dict[str, str]
    path: list[str | int] | None
    equals: str | None
    contains: str | None


WORDS = ("a", "b", "ab", "ba", "true", "7", "70", "é", '"', "\\", "x/y", " ")


def random_json(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return chance.choice((True, False, None))
    if kind == 1:
        return chance.choice((0, 1, 7, 70, -7, 7.5, 1e20, 2**40))
    if kind < 5:
        return "".join(chance.choices(WORDS, k=chance.randrange(3)))
    if kind < 7:
        return {chance.choice(WORDS): random_json(chance, depth + 1) for _ in range(chance.randrange(4))}
    return [random_json(chance, depth + 1) for _ in range(chance.randrange(4))]


def random_record(chance: random.Random) -> Record:
    def text() -> bytes | None:
        return None if chance.random() < 0.1 else "".join(chance.choices(WORDS, k=chance.randrange(4))).encode()

    value = text()
    if chance.random() < 0.8:
        value = json.dumps(random_json(chance), ensure_ascii=chance.random() < 0.5).encode()
    return Record(text(), value, 0, [(chance.choice(WORDS), text()) for _ in range(chance.randrange(3))])


def random_wanted(chance: random.Random) -> Wanted:
    def needle() -> str | None:
        return None if chance.random() < 0.6 else "".join(chance.choices(WORDS, k=chance.randrange(1, 3)))

    headers = {chance.choice(WORDS): needle() or ""} if chance.random() < 0.2 else {}
    path: list[str | int] | None = None
    steps: list[str | int] = [0, 1, -1, *(one for one in WORDS if one not in '"\\')]
    if chance.random() < 0.6:
        path = [chance.choice(steps) for _ in range(chance.randrange(3))]
    test = chance.randrange(3) if path is not None else 0
    return Wanted(
        needle() if chance.random() < 0.4 else None,
        needle() if chance.random() < 0.4 else None,
        headers,
        path,
        (needle() or "7") if test == 1 else None,
        (needle() or "7") if test == 2 else None,
    )


def naive(wanted: Wanted, record: Record) -> bool:
    if wanted.key is not None and (record.key is None or wanted.key.encode() not in record.key):
        return False
    if wanted.value is not None and (record.value is None or wanted.value.encode() not in record.value):
        return False
    for name, needle in wanted.headers.items():
        if not any(one == name and (needle == "" or needle.encode() in (text or b"")) for one, text in record.headers):
            return False
    if wanted.path is None:
        return True
    try:
        part: Any = json.loads((record.value or b"").decode())
    except ValueError:
        return False
    for step in wanted.path:
        if isinstance(step, str):
            members = [part[step]] if isinstance(part, dict) and step in part else []
        else:
            members = part[step : step + 1 or None] if isinstance(part, list) else []
        if not members:
            return False
        part = members[0]
    if wanted.equals is not None:
        return naive_equals(part, wanted.equals)
    if wanted.contains is not None:
        text = part if isinstance(part, str) else json.dumps(part)
        return part is not None and not isinstance(part, dict | list) and wanted.contains in text
    return True


def naive_equals(part: Any, text: str) -> bool:
    if isinstance(part, str) and part == text:
        return True
    try:
        scalar = json.loads(text)
    except ValueError:
        return False
    return type(part) is type(scalar) and not isinstance(part, dict | list) and part == scalar


def test_filters_agree_with_a_naive_twin() -> None:
    seed = int(os.environ.get("KWIRE_TEST_SEED") or random.randrange(1 << 32))
    print(f"KWIRE_TEST_SEED={seed}")
    chance = random.Random(seed)
    passed = 0
    for _ in range(repetitions(quick=2_000, full=20_000)):
        wanted = random_wanted(chance)
        test = None
        if wanted.path is not None:
            text = "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in wanted.path)
            test = PathTest(parse_path(text), wanted.equals, wanted.contains)
        tested = RecordFilter(wanted.key, wanted.value, wanted.headers, test)
        records = [random_record(chance) for _ in range(8)]
        body = bytes(build_batch(records))[HEADER_BYTES:]
        expected = [naive(wanted, one) for one in records]
        found = [tested.passes(one.key, one.value, one.headers) for one in records]
        assert found == expected, (wanted, records)
        assert tested.may_match(body, 0, len(body)) or not any(expected), (wanted, records)
        passed += sum(expected)
    assert passed > 100, "the test is of no use if nothing passes"

"""Types and values decoded from the bytes of records are those that readers of events see."""

from random import Random

import pytest
from msgspec.structs import replace

from kwire.streams.event_store.schemas.typed_records import REMEMBERED_MAX, typed_records
from kwire.streams.events.event import NewEvent, event_of, record_of
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.errors import CorruptBatch

NOW_MS = 1_800_000_000_000


def found_in(records: list[Record]) -> list[tuple[int, str, bytes | None]]:
    batch = bytes(build_batch(records))
    return [(one.number, one.type, one.value) for one in typed_records(batch[HEADER_BYTES:], parse_header(batch))]


def test_published_events_are_found_with_their_types() -> None:
    events = [NewEvent(f"type{n % 3}", b"%d" % n, {"a": "b"}, b"key") for n in range(REMEMBERED_MAX * 3)]
    records = [record_of(one, b"/topics/t", f"id{n}", NOW_MS + n) for n, one in enumerate(events)]
    assert found_in(records) == [(n, one.type, one.data) for n, one in enumerate(events)]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "message"),
        ([("ce_type", None)], "message"),
        ([("ce_type", b"")], "message"),
        ([("ce_type", b"a")], "a"),
        ([("ce_type", b"a"), ("ce_type", b"b")], "b"),
        ([("ce_type", b"a"), ("ce_type", b"")], "a"),
        ([("ce_type", b"a"), ("ce_type", None)], "a"),
        ([("x", b"\x0ece_type\x02b"), ("ce_type", b"a")], "a"),
        ([("ce_type", b"a"), ("x", b"\x0ece_type\x02b")], "a"),
        ([("ce_typ", b"a"), ("ce_types", b"b"), ("CE_TYPE", b"c")], "message"),
        ([("ce_type", b"\xff")], "\\xff"),
        ([("y" * 300, b"z" * 300), ("ce_type", b"t" * 200)], "t" * 200),
    ],
)
def test_the_type_is_what_readers_see(headers: list[tuple[str, bytes | None]], expected: str) -> None:
    record = Record(None, b"1", NOW_MS, headers)
    assert event_of(record).type == expected
    assert found_in([record, record]) == [(0, expected, b"1"), (1, expected, b"1")]


def test_any_records_are_seen_as_the_thorough_way_sees_them() -> None:
    chance = Random(7)
    for _ in range(300):
        records = [
            Record(
                chance.choice((None, b"", b"k" * chance.choice((1, 70, 20_000)))),
                chance.choice((None, b"", b"v" * chance.choice((1, 63, 64, 8191, 8192)))),
                NOW_MS + chance.randint(-(10**9), 10**9),
                [
                    (chance.choice(("ce_type", "ce_id", "x" * chance.choice((0, 5, 64)))), chance.choice((None, b"a")))
                    for _ in range(chance.randint(0, 5))
                ],
            )
            for _ in range(chance.randint(1, 200 if chance.random() < 0.05 else 5))
        ]
        batch = bytes(build_batch(records))
        thorough = [(n, event_of(one).type, one.value) for n, one in enumerate(read_records(batch, 10**9))]
        assert found_in(records) == thorough


def test_broken_records_are_never_taken_for_others() -> None:
    records = [Record(b"key", b"value", NOW_MS, [("ce_type", b"made"), ("other", b"x")]) for _ in range(3)]
    batch = bytes(build_batch(records))
    header, body = parse_header(batch), batch[HEADER_BYTES:]
    right = list(typed_records(body, header))
    chance = Random(5)
    for position in range(len(body)):
        for byte in {0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)}:
            broken = body[:position] + bytes((byte,)) + body[position + 1 :]
            try:
                seen = list(typed_records(broken, header))
            except CorruptBatch:
                continue
            assert len(seen) == len(right)
    for size in range(len(body)):
        with pytest.raises(CorruptBatch):
            list(typed_records(body[:size], header))
    with pytest.raises(CorruptBatch):
        list(typed_records(body + b"\0", header))
    with pytest.raises(CorruptBatch):
        list(typed_records(body, replace(header, record_count=4)))


def test_records_are_numbered_in_order() -> None:
    one, two = (bytes(build_batch([Record(None, b"1", NOW_MS)])) for _ in range(2))
    with pytest.raises(CorruptBatch, match="the offset delta of record 1 is not 1"):
        list(typed_records(one[HEADER_BYTES:] + two[HEADER_BYTES:], replace(parse_header(one), record_count=2)))

"""The layout of event files: paths, groups, names and contents."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.broker.topics.names import NAME_LENGTH_MAX
from kwire.streams.event_store.files.layout import (
    TOPIC_LENGTH_MAX,
    FileEvent,
    NotAnEventFile,
    checked,
    config_path,
    config_text,
    deleted_name,
    event_path,
    event_text,
    group_of,
    is_date,
    is_group,
    parse_config,
    parse_event,
    schemas_text,
    sequence_in,
)

SCHEMA = {
    "type": "user.created",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}


def event(sequence: int, payload: object = None, **more: object) -> FileEvent:
    return FileEvent(sequence, "2025-07-06T09:30:00.250Z", "user.created", json.dumps(payload).encode(), **more)  # type: ignore[arg-type]


@pytest.mark.proves("S2-8", "S2-10")
@pytest.mark.parametrize(
    ("topic", "sequence", "path"),
    [
        ("user-events", 1, "data/user-events/2025-07-06/0000/user-events-1.json"),
        ("user-events", 2, "data/user-events/2025-07-06/0000/user-events-2.json"),
        ("user-events", 1001, "data/user-events/2025-07-06/0001/user-events-1001.json"),
        ("audit-events", 1, "data/audit-events/2025-07-06/0000/audit-events-1.json"),
    ],
)
def test_paths_are_those_of_the_example(topic: str, sequence: int, path: str) -> None:
    assert event_path(topic, event(sequence)) == path


@pytest.mark.proves("S2-9", "C-21")
def test_a_group_is_a_thousand_numbers_of_the_sequence() -> None:
    assert [group_of(number) for number in (1, 999, 1000, 1001, 2000, 2001)] == [
        *("0000", "0000", "0000", "0001", "0001", "0002")
    ]
    assert group_of(10_000_000) == "9999"
    assert group_of(10_000_001) == "10000"


@pytest.mark.proves("C-22")
def test_a_file_name_is_split_at_its_last_dash() -> None:
    assert sequence_in("orders-2025", "orders-2025-7.json") == 7
    assert sequence_in("orders", "orders-2025-7.json") is None
    assert sequence_in("a-1", "a-1-1.json") == 1
    assert sequence_in("a", "a-1-1.json") is None
    for stranger in ("a-1", "a-01.json", "a-0.json", ".1.new", "a.json", "a-x.json", "b-1.json"):
        assert sequence_in("a", stranger) is None


@pytest.mark.proves("S2-7", "S2-28")
def test_a_file_holds_the_whole_event_in_one_line() -> None:
    text = event_text("user-events", event(42, {"id": "123", "n": 1.50}))
    assert text.count(b"\n") == 1
    assert json.loads(text) == {
        "id": "user-events-42",
        "timestamp": "2025-07-06T09:30:00.250Z",
        "type": "user.created",
        "payload": {"id": "123", "n": 1.5},
    }
    assert list(json.loads(event_text("t", event(1, 2, metadata={"who": "me"})))) == [
        *("id", "timestamp", "type", "payload", "metadata")
    ]


@pytest.mark.proves("S2-13", "S2-14")
def test_the_configuration_holds_name_counter_and_schemas() -> None:
    text = config_text("user-events", 1287, schemas_text([SCHEMA]))
    assert json.loads(text) == {"name": "user-events", "sequence": 1287, "schemas": [SCHEMA]}
    assert text.decode() == json.dumps(json.loads(text), indent=2) + "\n"
    assert parse_config("user-events", text) == (1287, [SCHEMA])
    assert config_path("user-events") == "config/user-events.json"
    assert json.loads(config_text("t", 0, schemas_text([]))) == {"name": "t", "sequence": 0, "schemas": []}


@given(
    sequence=st.integers(1, 2**62),
    event_type=st.text(min_size=1).filter(lambda text: text.isprintable()),
    payload=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    metadata=st.dictionaries(st.text(), st.text(), max_size=3),
    key=st.none() | st.binary(),
)
def test_what_is_written_is_read_back(
    sequence: int, event_type: str, payload: object, metadata: dict[str, str], key: bytes | None
) -> None:
    raw = json.dumps(payload, separators=(",", ":")).encode()
    one = FileEvent(sequence, "2025-07-06T09:30:00.250Z", event_type, raw, metadata, key)
    assert parse_event("a-b", event_text("a-b", one)) == one


def test_a_file_that_was_written_by_hand_is_read_too() -> None:
    text = json.dumps(
        {"payload": {"a": [1, 2]}, "id": "t-9", "type": "x", "timestamp": "2025-07-06T09:30:00Z"}, indent=4
    )
    assert parse_event("t", text.encode()) == FileEvent(9, "2025-07-06T09:30:00Z", "x", b'{"a":[1,2]}')


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"id":"t-1","timestamp":"2025-07-06T09:30:00.250Z","type":"x"}',
        b'{"id":"t-1","timestamp":"../../../etc","type":"x","payload":1}',
        b'{"id":"t-1","timestamp":"2025-07-06","type":"x","payload":1}',
        b'{"id":"other-1","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1}',
        b'{"id":"t-0","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1}',
        b'{"id":7,"timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1}',
        b'{"id":"t-1","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1',
        b'{"id":"t-1","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1,"metadata":{"a":1}}',
        b'{"id":"t-1","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1,"key":{"base64":"?"}}',
        b'{"id":"t-1","timestamp":"2025-07-06T09:30:00Z","type":"x","payload":1,"key":7}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_of_the_topic_is_refused(raw: bytes) -> None:
    with pytest.raises(NotAnEventFile):
        parse_event("t", raw)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"name":"x","sequence":1,"schemas":[]}', b'{"name":"t"}', b"[" * 9999]
)
def test_what_is_no_configuration_of_the_topic_is_refused(raw: bytes) -> None:
    with pytest.raises(NotAnEventFile):
        parse_config("t", raw)


def test_an_event_without_a_place_is_refused() -> None:
    for wrong in (FileEvent(0, "2025-07-06T00:00:00Z", "t", b"1"), FileEvent(1, "٢٠٢٥-07-06T00:00:00Z", "t", b"1")):
        with pytest.raises(NotAnEventFile):
            checked(wrong)


def test_names_of_dates_and_groups_are_told_from_others() -> None:
    assert is_date("2025-07-06")
    assert not is_date("2025-07-06.new")
    assert [is_group(name) for name in ("0000", "12345", "00001", "000", "x000", "0000.ndjson.gz")] == [
        *(True, True, False, False, False, False)
    ]


def test_every_name_fits_into_a_folder() -> None:
    longest = "t" * TOPIC_LENGTH_MAX
    assert len(event_path(longest, event(10**19 - 1)).rpartition("/")[2]) == 255
    assert TOPIC_LENGTH_MAX < NAME_LENGTH_MAX
    assert len(deleted_name(longest, "0" * 32)) + len(".1000") <= 255

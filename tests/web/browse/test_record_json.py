"""Records as JSON: the encodings of keys and values, and what is cut."""

import json
from pathlib import Path

import pytest

from kwire.web.browse.record_json import LISTED, SHOWN_BYTES, Part, found_record, shown_record
from storage.batch.record_batch import Record
from tests.support.http import http_node
from tests.support.node import in_uvloop
from tests.web.browse.records_port import START_MS, browse, make_topic, put


def part(value: bytes | None, encoding: str = "auto") -> Part | None:
    record = found_record(0, 0, 0, 0, (None, value, ()), LISTED)
    return shown_record(record, encoding).value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "encoding", "data"),
    [
        (b'{"a": [1,\n 2]}', "json", {"a": [1, 2]}),
        (b"[1]", "json", [1]),
        (b'{"n": 12345678901234567890.10}', "json", None),
        (b"{broken", "text", "{broken"),
        (b'{"a":"\xff"}', "base64", None),
        (b'{"a":1e400}', "text", '{"a":1e400}'),
        (b"7", "text", "7"),
        (b'"text"', "text", '"text"'),
        (b"", "text", ""),
        ("zoë".encode(), "text", "zoë"),
        (b"\xff\x00", "base64", "/wA="),
    ],
)
def test_the_encoding_fits_the_bytes(value: bytes, encoding: str, data: object) -> None:
    found = part(value)
    assert found is not None
    assert (found.encoding, found.size_bytes, found.truncated) == (encoding, len(value), False)
    if encoding == "json":
        text = bytes(found.data)
        assert b"\n" not in text, "a line break would end the line"
        assert json.loads(text) == json.loads(value)
    elif data is not None:
        assert found.data == data


def test_json_is_text_on_request_so_that_digits_are_kept() -> None:
    found = part(b'{"n": 12345678901234567890.10}', "text")
    assert found is not None
    assert (found.encoding, found.data) == ("text", '{"n": 12345678901234567890.10}')
    found = part(b"abc", "base64")
    assert found is not None
    assert (found.encoding, found.data) == ("base64", "YWJj")
    assert part(None) is None


def test_a_cut_text_ends_with_a_whole_character() -> None:
    for text in ("é" * SHOWN_BYTES, "x" + "é" * SHOWN_BYTES, "€" * SHOWN_BYTES, "x😀" * SHOWN_BYTES):
        found = part(text.encode())
        assert found is not None
        assert (found.encoding, found.truncated, found.size_bytes) == ("text", True, len(text.encode()))
        assert text.startswith(found.data)
        assert len(found.data.encode()) > SHOWN_BYTES - 4


@in_uvloop
async def test_long_values_are_cut_and_one_record_is_read_whole(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        topic = await make_topic(http)
        value = b'{"long": "%b"}' % (b"z" * 100_000)
        headers = [(f"h{number}", b"v" * 500) for number in range(150)]
        await put(topic, 0, [Record(b"k" * 5000, value, START_MS, headers), Record(b"k", b"v", START_MS + 1)])
        short, cut = (await browse(http)).records
        assert "truncated" not in short
        assert (cut["truncated"], len(cut["headers"])) == (True, 100)
        assert cut["value"] == {
            "encoding": "text",
            "data": value[:SHOWN_BYTES].decode(),
            "size_bytes": len(value),
            "truncated": True,
        }
        assert cut["size_bytes"] == len(value) + 5000 + sum(len(name) + len(text) for name, text in headers)
        whole = (await http.get("/topics/t/partitions/0/records/0")).json
        assert (whole["value"]["encoding"], whole["value"]["data"]) == ("json", json.loads(value))
        assert (len(whole["headers"]), whole["key"]["data"], "truncated" in whole) == (150, "k" * 5000, False)
        for path, code in (
            ("/topics/t/partitions/0/records/2", "RecordNotFound"),
            ("/topics/t/partitions/1/records/0", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("/topics/other/partitions/0/records/0", "UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            answer = await http.get(path)
            assert (answer.status, answer.code) == (404, code)
        assert (await http.get("/topics/t/partitions/0/records/x")).status == 400

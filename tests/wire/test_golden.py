"""Frames that were checked by hand, byte by byte, and against Kafka's own Java classes: `golden/*.txt`.

A file names a message and its version, then gives the frame as hex in two parts, header and body, and the value of the
body as JSON, with bytes written as "hex:…". Everything behind a # is a comment.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kwire.wire.apis import APIS
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.schema import message_of
from kwire.wire.spec import from_plain, spec
from tests.wire.cases import MESSAGES

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@dataclass(frozen=True)
class Golden:
    cls: type[Any]
    version: int
    header: bytes
    body: bytes
    value: dict[str, Any]


def read(path: Path) -> Golden:
    lines = [line.split("#")[0].rstrip() for line in path.read_text().splitlines()]
    head, frame, value = (part.strip() for part in _split("\n".join(lines), "\nheader\n", "\nvalue\n"))
    word, name, version = head.split()
    assert word == "message"
    header, body = frame.split("\nbody\n")
    cls = next(cls for cls in MESSAGES if cls.__name__ == name)
    parsed = json.loads(value, object_hook=_with_bytes)
    return Golden(cls, int(version), bytes.fromhex(header), bytes.fromhex(body), parsed)


def _split(text: str, *marks: str) -> list[str]:
    parts = []
    for mark in marks:
        part, found, text = text.partition(mark)
        assert found
        parts.append(part)
    return [*parts, text]


def _with_bytes(values: dict[str, Any]) -> dict[str, Any]:
    def told(value: Any) -> Any:
        is_hex = isinstance(value, str) and value.startswith("hex:")
        return bytes.fromhex(value.removeprefix("hex:")) if is_hex else value

    return {name: told(value) for name, value in values.items()}


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def golden(request: pytest.FixtureRequest) -> Golden:
    path: Path = request.param
    return read(path)


def test_the_body_is_read(golden: Golden) -> None:
    assert decode_message(golden.cls, golden.version, golden.body) == from_plain(golden.cls, golden.value)


def test_the_body_is_written(golden: Golden) -> None:
    assert encode_message(from_plain(golden.cls, golden.value), golden.version) == golden.body


def test_the_spec_tells_every_field_of_the_version(golden: Golden) -> None:
    assert spec(golden.cls, golden.version).parse(golden.body) == golden.value
    assert spec(golden.cls, golden.version).build(golden.value) == golden.body


def test_size_key_version_and_tags_of_the_header_fit_the_body(golden: Golden) -> None:
    header, message = golden.header, message_of(golden.cls)
    assert struct.unpack_from(">i", header)[0] == len(header) + len(golden.body) - 4
    flexible = golden.version >= APIS[message.key].first_flexible
    if message.name.endswith("Request"):
        assert struct.unpack_from(">hh", header, 4) == (message.key, golden.version)
        (client_id_size,) = struct.unpack_from(">h", header, 12)
        assert header[14 + max(client_id_size, 0) :] == b"\x00" * flexible
    else:
        assert header[8:] == b"\x00" * (flexible and message.key != 18)

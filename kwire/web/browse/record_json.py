"""Records as JSON, for people and browsers. Long keys, values and headers are cut.

A key, value or header is an object with its `size_bytes`, its `data` and the `encoding` of the data:

- `json`: the bytes are a JSON object or array, and `data` is this object or array
- `text`: the bytes are UTF-8, and `data` is the text
- `base64`: other bytes

A null key or value is null. `truncated` is true if the data was cut.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from kwire.errors import InvalidEvent
from kwire.streams.events.json_text import checked_json
from storage.batch.format import TIMESTAMP_TYPE_BIT

# The maximum size of a key or value in a list of records. The record itself can be read whole.
SHOWN_BYTES = 4 * 1024
SHOWN_HEADERS_MAX = 100
SHOWN_HEADER_BYTES = 256
# The limits for one whole record. Larger parts are cut.
WHOLE_BYTES_MAX = 4 * 1024 * 1024
WHOLE_HEADERS_MAX = 10_000
WHOLE_HEADER_BYTES = 64 * 1024
# Larger values are shown as text, because checking JSON of this size takes several milliseconds.
JSON_BYTES_MAX = 1024 * 1024

EncodingChoice = Literal["auto", "text", "base64"]


class CutLimits(NamedTuple):
    """The maximum sizes of the parts of a record."""

    part_bytes: int
    headers: int
    header_bytes: int


LISTED = CutLimits(SHOWN_BYTES, SHOWN_HEADERS_MAX, SHOWN_HEADER_BYTES)
WHOLE = CutLimits(WHOLE_BYTES_MAX, WHOLE_HEADERS_MAX, WHOLE_HEADER_BYTES)


class Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A key, a value, or the value of a header."""

    encoding: Literal["json", "text", "base64"]
    data: Annotated[Any, msgspec.Meta(description="JSON for the encoding `json`, else a string.")]
    size_bytes: int
    truncated: Annotated[bool, msgspec.Meta(description="Whether the data was cut.")] = False


class RecordHeader(msgspec.Struct, kw_only=True):
    name: str
    value: Part | None


class BrowsedRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    partition: int
    offset: int
    timestamp: Annotated[int, msgspec.Meta(description="Milliseconds since 1970; -1 if the record has none.")]
    timestamp_type: Literal["create", "append"]
    key: Part | None
    value: Part | None
    headers: list[RecordHeader]
    size_bytes: Annotated[int, msgspec.Meta(description="The size of the key, the value and the headers.")]
    truncated: Annotated[
        bool,
        msgspec.Meta(description="Whether a part was cut, or headers were left out. The record can be read whole."),
    ] = False


class Cut(NamedTuple):
    """The first bytes of a key, value or header, and its whole size."""

    data: bytes
    size_bytes: int


class FoundRecord(NamedTuple):
    """A record that a scan has found, with cut parts."""

    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: Cut | None
    value: Cut | None
    headers: tuple[tuple[str, Cut | None], ...]
    size_bytes: int
    is_truncated: bool

    @property
    def kept_bytes(self) -> int:
        """About how much memory the record uses."""
        parts = sum(len(one.data) for one in (self.key, self.value) if one is not None)
        return 400 + parts + sum(200 + (0 if one is None else len(one.data)) for _, one in self.headers)


def found_record(
    partition: int,
    offset: int,
    timestamp_ms: int,
    attributes: int,
    fields: tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]],
    limits: CutLimits,
) -> FoundRecord:
    """Cut the fields of a record. `attributes` are those of its batch."""
    key, value, headers = fields
    shown = tuple(
        (name[: limits.header_bytes], _cut(text, limits.header_bytes)) for name, text in headers[: limits.headers]
    )
    is_truncated = (
        len(headers) > limits.headers
        or (key is not None and len(key) > limits.part_bytes)
        or (value is not None and len(value) > limits.part_bytes)
        or any(max(len(name), len(text or b"")) > limits.header_bytes for name, text in headers[: limits.headers])
    )
    size_bytes = len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)
    return FoundRecord(
        partition,
        offset,
        timestamp_ms,
        bool(attributes & TIMESTAMP_TYPE_BIT),
        _cut(key, limits.part_bytes),
        _cut(value, limits.part_bytes),
        shown,
        size_bytes,
        is_truncated,
    )


def shown_record(found: FoundRecord, encoding: EncodingChoice) -> BrowsedRecord:
    return BrowsedRecord(
        partition=found.partition,
        offset=found.offset,
        timestamp=found.timestamp_ms,
        timestamp_type="append" if found.is_append_time else "create",
        key=_part(found.key, encoding),
        value=_part(found.value, encoding),
        headers=[RecordHeader(name=name, value=_part(value, encoding)) for name, value in found.headers],
        size_bytes=found.size_bytes,
        truncated=found.is_truncated,
    )


def _cut(data: bytes | None, bytes_max: int) -> Cut | None:
    return None if data is None else Cut(data[:bytes_max], len(data))


def _part(cut: Cut | None, encoding: EncodingChoice) -> Part | None:
    if cut is None:
        return None
    data, size_bytes = cut
    is_cut = len(data) < size_bytes
    if encoding == "auto" and not is_cut and data[:1] in (b"{", b"[") and len(data) <= JSON_BYTES_MAX:
        try:
            return Part(encoding="json", data=msgspec.Raw(checked_json(data)), size_bytes=size_bytes)
        except InvalidEvent:
            # It is not JSON, or JSON that some parsers refuse.
            pass
    if encoding != "base64":
        text = _text(data, is_cut)
        if text is not None:
            return Part(encoding="text", data=text, size_bytes=size_bytes, truncated=is_cut)
    return Part(encoding="base64", data=b64encode(data).decode(), size_bytes=size_bytes, truncated=is_cut)


def _text(data: bytes, is_cut: bool) -> str | None:
    """Return the bytes as text; None if they are not UTF-8. If they were cut, the last character may be incomplete."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        return data[: error.start].decode()

"""Formats a frame as indented lines or as JSON. Record batches and consumer protocol data are decoded."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from kwire.cli.framework.printable import printable
from kwire.cli.log.batches import Region, decoded_records
from kwire.cli.log.text import batch_line, bytes_text, plain_bytes, record_line
from kwire.errors import ErrorCode
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire.wire.record_batch_spec import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, RecordBatchSpec
from kwire.wire.schema import ArrayKind, Kind, Struct, message_of, struct_of
from kwire.wire.spec import UNKNOWN_TAGS, BatchHeaderSpec, spec
from kwire.wire.types import BYTES, RECORDS, UUID
from storage.errors import StorageError

if TYPE_CHECKING:
    from kwire.cli.wire.decode import Frame

# Bytes fields that contain one of these messages if the group has the protocol type "consumer".
BLOBS: dict[tuple[str, str], type[Any]] = {
    ("JoinGroupRequestProtocol", "metadata"): ConsumerProtocolSubscription,
    ("JoinGroupResponseMember", "metadata"): ConsumerProtocolSubscription,
    ("SyncGroupRequestAssignment", "assignment"): ConsumerProtocolAssignment,
    ("SyncGroupResponse", "assignment"): ConsumerProtocolAssignment,
    ("DescribedGroupMember", "member_metadata"): ConsumerProtocolSubscription,
    ("DescribedGroupMember", "member_assignment"): ConsumerProtocolAssignment,
}


@dataclass(slots=True)
class Batches:
    """The decoded content of a records field. `rest` describes the bytes after the last complete batch, if any."""

    size_bytes: int
    batches: list[tuple[Region, list[dict[str, Any]], str]] = field(default_factory=list)
    rest: str = ""


def frame_lines(number: int, frame: "Frame") -> Iterator[str]:
    yield f"frame {number}  at byte {frame.position}  {frame.size_bytes} bytes  {_title(frame)}"
    for name, value in (frame.header or {}).items():
        yield f"  {name}: {_scalar(value)}"
    if frame.body is not None and frame.api is not None:
        yield from _lines(_tree(frame), 1)
    if frame.unread_bytes:
        yield f"  {frame.unread_bytes} bytes follow after the last field"
    if frame.problem:
        yield "  MALFORMED"


def frame_facts(number: int, frame: "Frame") -> dict[str, Any]:
    shown: dict[str, Any] = {
        "frame": number,
        "position": frame.position,
        "size_bytes": frame.size_bytes,
        "direction": frame.direction,
        "api": None if frame.api is None else frame.api.name,
        "api_key": None if frame.api is None else frame.api.key,
        "version": frame.version,
        **(frame.header or {}),
    }
    if frame.body is not None:
        shown["body"] = _tree(frame)
    if frame.unread_bytes:
        shown["unread_bytes"] = frame.unread_bytes
    if frame.problem:
        shown["problem"] = frame.problem
    return shown


def _title(frame: "Frame") -> str:
    return f"{'unknown' if frame.api is None else f'{frame.api.name} {frame.version}'} {frame.direction}"


def _tree(frame: "Frame") -> dict[str, Any]:
    assert frame.api is not None
    cls = frame.api.request if frame.direction == "request" else frame.api.response
    return _fields(message_of(cls).struct, frame.body, frame.version)


def _fields(kind: Struct, parsed: Any, version: int) -> dict[str, Any]:
    """Return the fields of this version by name, including tagged fields, with decoded values."""
    shown = {
        f.name: _value(f.kind, parsed[f.name], version, BLOBS.get((kind.name, f.name)))
        for f in kind.fields
        if version in f.versions and f.name in parsed
    }
    if UNKNOWN_TAGS in parsed:
        shown["unknown tags"] = {str(tag): bytes(value) for tag, value in parsed[UNKNOWN_TAGS].items()}
    return shown


def _value(kind: Kind, value: Any, version: int, blob: type[Any] | None = None) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_value(kind.element, element, version) for element in value]
    if isinstance(kind, Struct):
        # If a tagged struct is absent from the frame, `value` is its default.
        return _fields(kind, value, version)
    if kind is RECORDS:
        return batches_in(bytes(value))
    if kind is UUID:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if kind is BYTES and blob is not None:
        return _blob(blob, bytes(value))
    return value


def _blob(cls: type[Any], data: bytes) -> Any:
    """Decode a consumer subscription or assignment. If the bytes are neither, return them unchanged."""
    if len(data) < 2:
        return data
    version = min(int.from_bytes(data[:2]), message_of(cls).versions.last)
    try:
        parsed = spec(cls, version).parse(data[2:])
        is_whole = len(spec(cls, version).build(parsed)) == len(data) - 2
    except ConstructError:
        return data
    return {"version": int.from_bytes(data[:2]), **_fields(struct_of(cls), parsed, version)} if is_whole else data


def batches_in(data: bytes) -> Batches:
    """Decode every batch of a records field. An incomplete last batch is not an error, because Fetch may return one."""
    found = Batches(len(data))
    position = 0
    while position < len(data):
        left = len(data) - position
        if left >= LENGTH_OVERHEAD + 5 and data[position + 16] != MAGIC:
            found.rest = (
                f"position {position}  {left} bytes of message format {data[position + 16]}, which is not supported"
            )
            break
        size_bytes = LENGTH_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], signed=True)
        if left < HEADER_BYTES or size_bytes > left:
            found.rest = f"position {position}  {left} bytes of an incomplete batch"
            break
        header = BatchHeaderSpec.parse(data[position : position + HEADER_BYTES])
        try:
            batch = RecordBatchSpec.parse(data[position : position + size_bytes])
        except ConstructError:
            found.rest = f"position {position}  not a batch: its length field says {size_bytes} bytes"
            break
        region = Region(position, size_bytes, batch, "" if batch.is_intact else "the CRC does not match")
        try:
            records, problem = decoded_records(batch, is_group_topic=False), ""
        except (ConstructError, StorageError) as error:
            records, problem = [], f"the records cannot be read: {printable(str(error).splitlines()[0])}"
        found.batches.append((region, records, problem))
        position += LENGTH_OVERHEAD + header.batch_length
    return found


# --- text


def _lines(fields: dict[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{indent}{name}: {len(value)}"
            for element in value:
                first, *others = [*_lines(element, 0)] or ["(no fields)"]
                yield f"{indent}  - {first}"
                yield from (f"{indent}    {line}" for line in others)
        elif isinstance(value, Batches):
            yield f"{indent}{name}: {value.size_bytes} bytes"
            yield from (f"{indent}  {line}" for line in _batch_lines(value))
        else:
            yield f"{indent}{name}: {_scalar(value)}{_meaning(name, value)}"


def _batch_lines(found: Batches) -> Iterator[str]:
    for region, records, problem in found.batches:
        yield batch_line(region)
        for record in records:
            yield record_line(record)
        if problem:
            yield f"  {problem}"
    if found.rest:
        yield found.rest


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    if isinstance(value, bytes):
        return bytes_text(value)
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if _is_word(value) else str(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _meaning(name: str, value: Any) -> str:
    if not name.endswith("error_code") or not isinstance(value, int):
        return ""
    try:
        return f" {ErrorCode(value).name}"
    except ValueError:
        return ""


# --- JSON


def jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return plain_bytes(value)
    assert isinstance(value, Batches)
    shown: dict[str, Any] = {"size_bytes": value.size_bytes, "batches": [_batch(*one) for one in value.batches]}
    if value.rest:
        shown["rest"] = value.rest
    return shown


def _batch(region: Region, records: list[dict[str, Any]], problem: str) -> dict[str, Any]:
    shown = {name: value for name, value in region.batch.header.items() if not name.startswith("_")}
    shown |= {"position": region.position, "is_intact": not region.problem}
    shown["records"] = [
        {**one, "headers": [{"key": key, "value": plain_bytes(value)} for key, value in one["headers"]]}
        for one in records
    ]
    return shown | ({"problem": problem} if problem else {})

"""kwire wire decode: splits the input into frames and decodes each frame with `kwire.wire.spec`.

That module is the executable specification of the protocol: slow, but independent of the server's codec.
"""

import argparse
import io
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from construct import Construct, ConstructError

from kwire.cli.framework.errors import CannotRun
from kwire.cli.framework.output import is_data, print_line
from kwire.cli.framework.runner import print_error
from kwire.cli.wire.input import bytes_of, hex_bytes
from kwire.cli.wire.text import frame_facts, frame_lines, jsonable
from kwire.wire.apis import APIS
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.schema import Api, field, message, message_of
from kwire.wire.spec import spec
from kwire.wire.types import Int16, Int32, String

PRINTED, MALFORMED = 0, 1
INPUT_BYTES_MAX = 256 * 1024 * 1024
SIZE_BYTES = 4
# `construct` reports the location of an error as a path. These steps of a path do not name a field of a message.
_INNER_STEPS = {"(parsing)", "value", "length", "mark", "_tagged"}


@message(versions="1", flexible="none")
class RequestHeader:
    """The header of every request. In flexible versions, `HeaderTags` follow the header."""

    api_key: Int16 = field("1+")
    api_version: Int16 = field("1+")
    correlation_id: Int32 = field("1+")
    client_id: String | None = field("1+")


@message(versions="0", flexible="none")
class ResponseHeader:
    correlation_id: Int32 = field("0+")


@message(versions="0", flexible="0+")
class HeaderTags:
    """The tagged fields of a flexible header. Kafka has defined no such fields yet."""


@dataclass(slots=True)
class Frame:
    """One frame. If it is malformed, `problem` describes the error, and fields that were not decoded have defaults."""

    position: int
    size_bytes: int
    direction: str
    api: Api | None = None
    version: int = -1
    header: dict[str, Any] | None = None
    body: Any = None
    problem: str = ""
    unread_bytes: int = 0


class CannotDecode(CannotRun):
    """The input cannot be decoded. The message gives the reason."""


def decode(options: argparse.Namespace) -> int:
    api = None if options.api is None else _api(options.api)
    if options.version is not None and api is not None and options.version not in api.versions:
        raise CannotDecode(f"{api.name} has no version {options.version}, only {api.versions}")
    if options.response and (api is None or options.version is None):
        raise CannotDecode("a response does not contain its API and version: give --api and --version")
    data = _input(options)
    if not data:
        raise CannotDecode("the input is empty")
    code, number = PRINTED, 0
    for number, (position, frame) in enumerate(_frames(data, options.unframed), start=1):
        if options.response:
            assert api is not None
            read = read_response(frame, position, api, options.version)
        else:
            read = read_request(frame, position)
            is_wanted = (api is None or api is read.api) and options.version in (None, read.version)
            if not is_wanted and not read.problem:
                continue
        _show(number, read, options)
        if read.problem:
            code = MALFORMED
    end = _end_of(data) if not options.unframed else len(data)
    if end < len(data):
        print_error(f"{_cut_short(data, end)}")
        return MALFORMED
    return code


def _show(number: int, frame: Frame, options: argparse.Namespace) -> None:
    if is_data(options):
        print_line(frame_facts(number, frame), options, jsonable)
    else:
        print("\n".join(frame_lines(number, frame)), flush=bool(frame.problem))
    if frame.problem:
        print_error(f"frame {number}: {frame.problem}")


def _api(text: str) -> Api:
    """Return the API with this key or name. Case, `-` and `_` are ignored: Fetch, FETCH and list-offsets are valid."""
    plain = _plain(text)
    found = next((api for key, api in APIS.items() if text == str(key) or _plain(api.name) == plain), None)
    if found is None:
        raise CannotDecode(f"unknown API {text!r}; docs/protocol.md lists all APIs")
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _input(options: argparse.Namespace) -> bytes:
    if (options.hex is None) == (options.path is None):
        raise CannotDecode("give exactly one input: a file, - or --hex")
    if options.hex is not None:
        return hex_bytes(options.hex)
    if str(options.path) == "-":
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    else:
        with options.path.open("rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise CannotDecode(f"the input has more than the maximum of {INPUT_BYTES_MAX} bytes")
    return bytes_of(data)


def _frames(data: bytes, is_unframed: bool) -> Iterator[tuple[int, bytes]]:
    """Yield each complete frame: the position of the first byte after its size field, and the bytes from there on."""
    if is_unframed:
        yield 0, data
        return
    position, end = 0, _end_of(data)
    while position < end:
        stop = position + SIZE_BYTES + _size_at(data, position)
        yield position + SIZE_BYTES, data[position + SIZE_BYTES : stop]
        position = stop


def _end_of(data: bytes) -> int:
    """Return the position after the last complete frame."""
    position = 0
    while position + SIZE_BYTES <= len(data):
        size = _size_at(data, position)
        if size < 0 or position + SIZE_BYTES + size > len(data):
            break
        position += SIZE_BYTES + size
    return position


def _size_at(data: bytes, position: int) -> int:
    size: int = struct.unpack_from(">i", data, position)[0]
    return size


def _cut_short(data: bytes, end: int) -> str:
    left = len(data) - end
    if left < SIZE_BYTES:
        return f"at byte {end}: {left} bytes are too few for the size field of a frame"
    size = _size_at(data, end)
    return f"at byte {end}: the size field says {size} bytes, but {left - SIZE_BYTES} follow"


class _Stream(io.BytesIO):
    """A stream that stores the position of the last read in `read_at`. A parse error is at this position."""

    read_at = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.read_at = self.tell()
        return super().read(size)


def read_request(data: bytes, position: int) -> Frame:
    frame = Frame(position, len(data), "request")
    stream = _Stream(data)
    header = _parse(frame, stream, spec(RequestHeader, 1), "the request header")
    if header is None:
        return frame
    frame.header = {name: header[name] for name in ("correlation_id", "client_id")}
    frame.version = header.api_version
    frame.api = APIS.get(header.api_key)
    if frame.api is None:
        frame.problem = f"at byte {position}: unknown API key {header.api_key}"
        return frame
    if frame.version not in frame.api.versions:
        frame.problem = (
            f"at byte {position + 2}: {frame.api.name} has no version {frame.version}, only {frame.api.versions}"
        )
        return frame
    has_tags = frame.version in message_of(frame.api.request).flexible
    return _body(frame, stream, frame.api.request, has_tags)


def read_response(data: bytes, position: int, api: Api, version: int) -> Frame:
    frame = Frame(position, len(data), "response", api, version)
    stream = _Stream(data)
    header = _parse(frame, stream, spec(ResponseHeader, 0), "the response header")
    if header is None:
        return frame
    frame.header = {"correlation_id": header.correlation_id}
    # A response to ApiVersions has the non-flexible header in every version, because a client must be able to read it
    # before it has received the versions that the server supports.
    has_tags = version in message_of(api.response).flexible and api is not API_VERSIONS
    return _body(frame, stream, api.response, has_tags)


def _body(frame: Frame, stream: _Stream, cls: type[Any], has_tags: bool) -> Frame:
    if has_tags and _parse(frame, stream, spec(HeaderTags, 0), "the header's tags") is None:
        return frame
    frame.body = _parse(frame, stream, spec(cls, frame.version), cls.__name__)
    if frame.body is not None:
        frame.unread_bytes = frame.size_bytes - stream.tell()
    return frame


def _parse(frame: Frame, stream: _Stream, description: Construct, what: str) -> Any:
    """Parse the next bytes. If they are malformed, set the frame's `problem` and return None."""
    try:
        return description.parse_stream(stream)
    except ConstructError as error:
        path = [step.strip() for step in (error.path or "").split("->")]
        where = ".".join([what, *(step for step in path if step and step not in _INNER_STEPS)])
        reason = str(error).splitlines()[-1].strip()
        frame.problem = f"at byte {frame.position + stream.read_at}: {where}: {reason}"
        return None

"""The media types of REST Proxy v2: by them its requests are told from ours, where both have the same path.

`application/vnd.kafka[.format].v2+json`, as Content-Type of what is produced or as Accept of what is asked for. Formats
are `binary` (base64, and what a type without a format means), `json` and `text`. Those that need a schema registry
(`avro`, `jsonschema`, `protobuf`) are refused with 415.
"""

import re

import msgspec
from aiohttp import hdrs, web

from kwire.web.errors import UnsupportedMediaType

PROXY = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
TEXT_RECORDS = "application/vnd.kafka.text.v2+json"

_FAMILY = "application/vnd.kafka"
_TYPE = re.compile(r"application/vnd\.kafka(?:\.([a-z]+))?\.v2\+json")
_WITH_SCHEMA = frozenset({"avro", "jsonschema", "protobuf"})


def is_proxy(request: web.Request) -> bool:
    """The request is meant for REST Proxy: it sends, or asks for, one of its types."""
    headers = request.headers
    sent, wanted = headers.get(hdrs.CONTENT_TYPE), headers.get(hdrs.ACCEPT)
    return (sent is not None and sent.lower().startswith(_FAMILY)) or (wanted is not None and _FAMILY in wanted.lower())


def sends_records(request: web.Request) -> bool:
    """Its body is one of REST Proxy's, so it produces."""
    return request.content_type.startswith(_FAMILY)


def format_of(request: web.Request) -> str:
    """The media type of the records, in one of three spellings; raises UnsupportedMediaType."""
    matched = _TYPE.fullmatch(request.content_type)
    name = matched[1] if matched is not None else "?"
    if name in (None, "binary"):
        return BINARY
    if name == "json":
        return JSON_RECORDS
    if name == "text":
        return TEXT_RECORDS
    if name in _WITH_SCHEMA:
        raise UnsupportedMediaType(
            f"{name} records need a schema registry, which there is none of; send json or binary"
        )
    raise UnsupportedMediaType(f"records are sent as {BINARY}, {JSON_RECORDS} or {TEXT_RECORDS}")


def proxy_answer(request: web.Request, value: object, status: int = 200) -> web.Response:
    """JSON under the type that the client knows it by."""
    content_type = PROXY if is_proxy(request) else "application/json"
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=content_type)

"""The media types of REST Proxy v2. They distinguish requests of REST Proxy and of kwire's own API on the same path.

A media type is `application/vnd.kafka[.format].v2+json`, in Content-Type (of a produce request) or in Accept. The
formats are `binary` (base64, the default), `json` and `text`. Formats that need a schema registry (`avro`,
`jsonschema`, `protobuf`) are refused with status 415.
"""

import re

import msgspec
from aiohttp import hdrs, web

from kwire.web.answers.errors import UnsupportedMediaType

PROXY = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
TEXT_RECORDS = "application/vnd.kafka.text.v2+json"

_FAMILY = "application/vnd.kafka"
_TYPE = re.compile(r"application/vnd\.kafka(?:\.([a-z]+))?\.v2\+json")
_WITH_SCHEMA = frozenset({"avro", "jsonschema", "protobuf"})


def is_proxy(request: web.Request) -> bool:
    """Return whether the request uses the REST Proxy API: whether Content-Type or Accept has a media type of REST
    Proxy."""
    headers = request.headers
    sent, wanted = headers.get(hdrs.CONTENT_TYPE), headers.get(hdrs.ACCEPT)
    return (sent is not None and sent.lower().startswith(_FAMILY)) or (wanted is not None and _FAMILY in wanted.lower())


def sends_records(request: web.Request) -> bool:
    """Return whether the request produces records: whether its Content-Type is a media type of REST Proxy."""
    return request.content_type.startswith(_FAMILY)


def format_of(request: web.Request) -> str:
    """Return the media type of the records: BINARY, JSON_RECORDS or TEXT_RECORDS. Raises UnsupportedMediaType."""
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
            f"{name} records need a schema registry, which kwire does not have: send json, text or binary records"
        )
    raise UnsupportedMediaType(f"the Content-Type of records must be {BINARY}, {JSON_RECORDS} or {TEXT_RECORDS}")


def proxy_answer(request: web.Request, value: object, status: int = 200) -> web.Response:
    """Return a JSON answer. Its Content-Type is REST Proxy's media type if the request uses the REST Proxy API."""
    content_type = PROXY if is_proxy(request) else "application/json"
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=content_type)

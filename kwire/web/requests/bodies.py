"""Requests as typed values: a JSON body or a query string becomes a msgspec Struct, or a BadRequest that says where.

A body is JSON when it says so (`application/json`, or any `…+json`) or says nothing. A form or plain text is never
taken for JSON: those are what a page of another site can send without being asked first (safety.py).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import hdrs, web

from kwire.broker.events.json_limits import DEPTH_MAX
from kwire.web.body_bounds import check_values
from kwire.web.body_reading import received_body
from kwire.web.errors import BadRequest, UnsupportedMediaType
from kwire.web.safety import is_trusted
from kwire.web.whole_numbers import decoded_anyway, may_be_whole

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

JSON = "application/json"

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


async def body_of(request: web.Request, shape: type[T]) -> T:
    """The request's JSON body. `shape` is a Struct, or whatever else msgspec can decode."""
    check_is_json(request)
    return decoded(await raw_body_of(request), shape)


async def raw_body_of(request: web.Request) -> bytes:
    """All of the body, as long as it is within `kwire.http.max.body.bytes` and comes in time."""
    return await received_body(request)


def decoded(raw: bytes | memoryview, shape: type[T]) -> T:
    """One JSON text without events as a typed value."""
    return checked_and_decoded(raw, shape, check_values)


def checked_and_decoded(
    raw: bytes | memoryview, shape: type[T], check: Callable[[bytes | bytearray | memoryview], None]
) -> T:
    """One JSON text as a typed value, after a check that bounds how long that takes (`body_bounds`).

    The number of shapes is small, so each decoder is made once.
    """
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        check(raw)
        found: T
        try:
            found = decoder.decode(raw)
        except msgspec.ValidationError as error:
            if not may_be_whole(raw, error):
                raise
            found = decoded_anyway(raw, shape)
    except msgspec.ValidationError as error:
        raise BadRequest(_sentence(error)) from None
    except RecursionError:
        raise BadRequest(f"the body exceeds the nesting depth of {DEPTH_MAX} levels", code="InvalidJson") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}", code="InvalidJson") from None
    return found


def query_of(request: web.Request, shape: type[S]) -> S:
    """The query string; numbers and booleans are told by the Struct's fields, names it lacks are refused by it."""
    query = request.rel_url.query
    given = dict(query)
    if len(given) != len(query):
        raise BadRequest("a query parameter is given twice")
    try:
        found = msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(f"query: {_sentence(error)}") from None
    for field in msgspec.structs.fields(found):
        text = given.get(field.encode_name)
        if text is None:
            continue
        value = getattr(found, field.name)
        # msgspec takes the word "null" for nothing, and 0 and 1 for booleans: that is not what is described.
        if (value is None and text.lower() == "null") or (isinstance(value, bool) and text in ("0", "1")):
            raise BadRequest(f"query: {field.encode_name} has no value {text!r}")
    return found


def number_in_path(request: web.Request, name: str) -> int:
    """A path parameter that is a number."""
    text = request.match_info[name]
    # No more digits than a 64-bit offset has.
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 2**63:
        raise BadRequest(f"{name} must be a number from 0 to {2**63 - 1}")
    return int(text)


def check_is_json(request: web.Request) -> None:
    """A page of a listed origin may call its JSON plain text, which spares the browser a question."""
    kind = request.headers.get(hdrs.CONTENT_TYPE)
    if kind is None or kind == JSON:
        return
    if not is_json(request.content_type) and not is_trusted(request):
        raise UnsupportedMediaType(
            f"the body must be JSON: send Content-Type: application/json, not {request.content_type}"
        )


def is_json(content_type: str) -> bool:
    return content_type == JSON or content_type.endswith("+json")


def json_answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=JSON)


def _sentence(error: msgspec.ValidationError) -> str:
    """msgspec's own words, which name the place as a path from `$`."""
    text = str(error)
    return text[:1].lower() + text[1:]

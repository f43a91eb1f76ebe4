"""Decodes JSON bodies and query strings to msgspec Structs. For invalid input, a BadRequest names the invalid field.

A body is decoded as JSON if its Content-Type is `application/json`, `…+json`, or absent. A form or plain text is
refused, because a page of another origin can send these without a CORS preflight (origin_policy.py). Only pages of
origins that `kwire.http.origins` lists may send JSON as plain text.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from aiohttp import hdrs, web

from kwire.streams.events.json_limits import DEPTH_MAX
from kwire.web.answers.errors import BadRequest, UnsupportedMediaType
from kwire.web.requests.body_checks import BodyChecks
from kwire.web.requests.body_limits import check_objects, check_values
from kwire.web.requests.body_receiver import received_body
from kwire.web.requests.integral_floats import decode_integral_floats, failed_on_float
from kwire.web.requests.origin_policy import is_trusted
from kwire.web.requests.tickets import TAKES_TICKET, TICKET_PARAMETER
from kwire.web.vocabulary.unknown_fields import sentence_of

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

JSON = "application/json"

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


async def body_of(request: web.Request, shape: type[T]) -> T:
    """Return the request's JSON body, decoded to `shape`: a Struct or any other type that msgspec can decode."""
    check_is_json(request)
    return decoded(await raw_body_of(request), shape)


async def raw_body_of(request: web.Request) -> bytes:
    """Return the complete body. `received_body` describes the limits and errors."""
    return await received_body(request)


def decoded(raw: bytes | memoryview, shape: type[T]) -> T:
    """Decode a JSON text that contains no events."""
    return checked_and_decoded(raw, shape, check_values)


def checked_and_decoded(
    raw: bytes | memoryview, shape: type[T], check: Callable[[bytes | bytearray | memoryview], None]
) -> T:
    """Call `check` and decode a JSON text. The check limits how long decoding can take (`body_limits`)."""
    with _bad_request_on_failure(shape):
        check(raw)
        return _decoded(raw, shape)


async def checked_and_decoded_events(
    checks: BodyChecks, raw: bytes, shape: type[T], check: Callable[[bytes | bytearray | memoryview], None]
) -> T:
    """Run `check` and `check_objects`, then decode one or many events. A worker process checks large bodies."""
    with _bad_request_on_failure(shape):
        await checks.run(raw, check_objects, check)
        return _decoded(raw, shape)


def _decoded(raw: bytes | memoryview, shape: type[T]) -> T:
    """Decode with the type's decoder. Decoders are cached without a limit, because the number of types is small."""
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    found: T
    try:
        found = decoder.decode(raw)
    except msgspec.ValidationError as error:
        if not failed_on_float(raw, error):
            raise
        found = decode_integral_floats(raw, shape)
    return found


@contextmanager
def _bad_request_on_failure(shape: Any) -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        raise BadRequest(sentence_of(error, shape)) from None
    except RecursionError:
        raise BadRequest(f"the body exceeds the nesting depth of {DEPTH_MAX} levels", code="InvalidJson") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}", code="InvalidJson") from None


def query_of(request: web.Request, shape: type[S]) -> S:
    """Return the query string as a Struct. Raises BadRequest for parameters that are not fields of the Struct."""
    query = request.rel_url.query
    given = dict(query)
    if len(given) != len(query):
        raise BadRequest("query: a parameter is given more than once")
    if TAKES_TICKET in request:
        # The authentication has read it.
        given.pop(TICKET_PARAMETER, None)
    return converted_query(given, shape)


def converted_query(given: Mapping[str, str], shape: type[S]) -> S:
    """Return the parameters of a query string as a Struct. Raises BadRequest, as `query_of` does."""
    try:
        found = msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(f"query: {sentence_of(error, shape)}") from None
    for field in msgspec.structs.fields(found):
        text = given.get(field.encode_name)
        if text is None:
            continue
        value = getattr(found, field.name)
        # msgspec reads the word "null" as None, and 0 and 1 as booleans; the API description allows neither.
        if (value is None and text.lower() == "null") or (isinstance(value, bool) and text in ("0", "1")):
            raise BadRequest(f"query: {text!r} is not a valid value of {field.encode_name}")
    return found


def number_in_path(request: web.Request, name: str) -> int:
    """Return a path parameter as a number. Raises BadRequest if it is not a number from 0 to 2**63 - 1."""
    text = request.match_info[name]
    # A 64-bit offset has at most 19 digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 2**63:
        raise BadRequest(f"{name} must be a number from 0 to {2**63 - 1}")
    return int(text)


def check_is_json(request: web.Request) -> None:
    """Raise UnsupportedMediaType if the request has a Content-Type that is not JSON. Only a page of a listed origin may
    send JSON as plain text: then the browser sends no CORS preflight."""
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

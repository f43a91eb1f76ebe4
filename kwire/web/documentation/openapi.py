"""GET /openapi.json: the HTTP API in OpenAPI 3.1. The document is generated from the routes and from the types to which
bodies are decoded, so it always matches the server."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from aiohttp import web

from kwire import __version__
from kwire.web.access.session_cookie import COOKIE_NAME
from kwire.web.answers.errors import ErrorAnswer
from kwire.web.needs import PUBLIC
from kwire.web.requests.tickets import SUBPROTOCOL_PREFIX, TICKET_PARAMETER
from kwire.web.route import JSON, NDJSON, Answer, AnyOf, Route


class Tag(NamedTuple):
    """A section of the document: how pages call it, and what it is about."""

    title: str
    description: str


TAGS = {
    "rooms": Tag("Rooms", "Publish events, read the history, subscribe to new events."),
    "db events": Tag(
        "Events of tenants",
        "Publish and subscribe with an API key, within its scope and its limits.",
    ),
    "commands": Tag("Commands", "The commands of the WebSocket, as single requests."),
    "events": Tag("Event store", "Events with schemas, published atomically, read and subscribed to in order."),
    "topics": Tag("Topics", "Topics with partitions."),
    "consumer groups": Tag("Consumer groups over HTTP", "Members share the partitions of a topic."),
    "webhooks": Tag("Webhooks", "Events are sent to URLs. Deliveries, dead letters and replays."),
    "rest proxy": Tag(
        "REST Proxy",
        "REST Proxy API version 2, the de-facto standard for Kafka over HTTP, selected by its media types.",
    ),
    "groups": Tag("Groups", "All consumer groups, with members, offsets and lag."),
    "sessions": Tag("Sessions", "Sessions of browsers: log in, log out, and what the client may do."),
    "kafka": Tag("Kafka requests", "The administrative requests of the Kafka protocol as JSON."),
    "keys": Tag("API keys", "API keys of tenants and of programs that administer the server."),
    "users": Tag("Users", "Users with passwords, and their roles."),
    "admin": Tag("Administration", "The state of the node, and backups."),
    "node": Tag("Node", "Health, metrics and documentation of the node."),
}
_SECURITY_SCHEMES = {
    "basic": {"type": "http", "scheme": "basic", "description": "The name and the password of a SCRAM user."},
    "key": {"type": "http", "scheme": "bearer", "description": "The token of an API key."},
    "certificate": {"type": "mutualTLS", "description": "The client certificate of the TLS connection."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE_NAME,
        "description": "The session of `POST /session`, for pages of this server.",
    },
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": TICKET_PARAMETER,
        "description": "A ticket of `POST /tickets`, for one stream. As a WebSocket subprotocol: "
        f"`{SUBPROTOCOL_PREFIX}TICKET`.",
    },
}
# The empty entry: without kwire.http.authentication no credentials are needed.
_CREDENTIALS: list[dict[str, list[str]]] = [{}, {"basic": []}, {"key": []}, {"certificate": []}, {"session": []}]
_PARAMETER = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
_REF = "#/components/schemas/{name}"


def routes_of(all_routes: Callable[[], Sequence[Route[Any]]]) -> tuple[Route[object], ...]:
    """Return the route of the document. The document is created at the first request, not when the server starts."""

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(document(all_routes()))

    async def serve(services: object, request: web.Request) -> web.Response:
        return web.Response(body=encoded(), content_type="application/json")

    return (
        Route(
            "GET",
            "/openapi.json",
            serve,
            summary="The OpenAPI document of this API",
            answers={200: Answer("The HTTP API in OpenAPI 3.1.", {JSON: dict[str, Any]})},
            needs=PUBLIC,
        ),
    )


def document(routes: Sequence[Route[Any]]) -> dict[str, Any]:
    shown = [route for route in routes if not route.is_hidden]
    types = list(dict.fromkeys(_types(shown)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        operations = paths.setdefault(path_of(route), {})
        operations[route.method.lower()] = _operation(route, schema_of, components)
    # Remove the Structs of query strings: each route lists their fields as parameters.
    for route in shown:
        if route.query is not None:
            components.pop(_component_of(route.query, schema_of), None)
    used = {route.tag for route in shown}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kwire",
            "version": __version__,
            "description": "Rooms, topics, consumer groups, the event store and webhooks over HTTP, on the same logs "
            "that Kafka clients use.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": name, "x-displayName": tag.title, "description": tag.description}
            for name, tag in TAGS.items()
            if name in used
        ],
        "paths": paths,
        "security": _CREDENTIALS,
        "components": {"schemas": dict(sorted(components.items())), "securitySchemes": _SECURITY_SCHEMES},
    }


def path_of(route: Route[Any]) -> str:
    """Return the path of a route as the document shows it: `/topics/{topic}`."""
    return _PARAMETER.sub(r"{\1}", route.path)


def _types(routes: Iterable[Route[Any]]) -> Iterator[Any]:
    """Generate all types that the document describes."""
    yield ErrorAnswer
    for route in routes:
        shapes = [route.request, route.query, *route.more_requests.values(), *route.parameters.values()]
        shapes += [*route.more_refusals.values(), *route.headers.values()]
        for answer in route.answers.values():
            shapes += answer.shapes.values() if isinstance(answer, Answer) else [answer]
        for shape in shapes:
            if shape is not None:
                yield from _choices(shape)


def _operation(route: Route[Any], schema_of: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
    }
    if route.description:
        operation["description"] = route.description
    parameters = [
        *_path_parameters(route, schema_of),
        *_query_parameters(route, schema_of, components),
        *_header_parameters(route, schema_of),
    ]
    if parameters:
        operation["parameters"] = parameters
    bodies = ({JSON: route.request} if route.request is not None else {}) | dict(route.more_requests)
    if bodies:
        content = {media_type: _content(media_type, shape, schema_of) for media_type, shape in bodies.items()}
        operation["requestBody"] = {"required": not _may_be_left_out(route.request), "content": content}
    responses = {str(status): _response(status, answer, schema_of) for status, answer in route.answers.items()}
    shapes = {JSON: ErrorAnswer} | dict(route.more_refusals)
    content = {media_type: {"schema": schema_of[shape]} for media_type, shape in shapes.items()}
    refused = {"description": "The request was refused; see `code` and `message`.", "content": content}
    unavailable = {
        "description": "Storage failed, memory is exhausted, or the node is not ready. Retry later.",
        "content": refused["content"],
    }
    operation["responses"] = {**responses, "4XX": refused} | ({} if "503" in responses else {"503": unavailable})
    if route.is_streaming:
        operation["x-streaming"] = True
    if route.needs == PUBLIC:
        operation["security"] = []
        return operation
    if route.is_streaming:
        operation["security"] = [*_CREDENTIALS, {"ticket": []}]
    if isinstance(route.needs, tuple) and route.needs:
        operation["x-permissions"] = [str(need) for need in route.needs]
    operation["responses"]["401"] = {
        "description": "Authentication is on, and the request has no valid credentials.",
        "headers": {"WWW-Authenticate": {"schema": {"type": "string"}}},
        "content": content,
    }
    operation["responses"]["403"] = {
        "description": "The client has no right to the resource, or the operation, host or origin is not allowed.",
        "content": content,
    }
    return operation


def _operation_id(route: Route[Any]) -> str:
    name = getattr(route.handle, "__name__", None) or re.sub(r"\W+", "_", route.path).strip("_")
    module = getattr(route.handle, "__module__", "").removeprefix("kwire.web.")
    return f"{module}.{name}.{route.method.lower()}"


def _path_parameters(route: Route[Any], schema_of: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(route.path):
        given = route.parameters.get(name)
        schema = {"type": "string", "minLength": 1} if given is None else schema_of[given]
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(
    route: Route[Any], schema_of: dict[Any, Any], components: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if route.query is None:
        return
    shape = components[_component_of(route.query, schema_of)]
    for name, schema in shape.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in shape.get("required", ()), **_described(schema)}
        yield parameter


def _header_parameters(route: Route[Any], schema_of: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for name, shape in route.headers.items():
        yield {"name": name, "in": "header", "required": False, **_described(schema_of[shape])}


def _component_of(shape: Any, schema_of: dict[Any, Any]) -> str:
    reference: str = schema_of[shape]["$ref"]
    return reference.rpartition("/")[2]


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema and the description of a parameter. Remove null from the schema, because a query string cannot
    contain null."""
    schema = dict(schema)
    if "anyOf" in schema:
        left = [one for one in schema["anyOf"] if one.get("type") != "null"]
        if len(left) == 1:
            del schema["anyOf"]
            schema = {**left[0], **schema}
    if schema.get("default", 0) is None:
        del schema["default"]
    description = schema.pop("description", None)
    return {"schema": schema} | ({"description": description} if description else {})


def _response(status: int, answer: Any, schema_of: dict[Any, Any]) -> dict[str, Any]:
    if answer is None:
        return {"description": "Success." if status < 300 else "See the headers."}
    if not isinstance(answer, Answer):
        answer = Answer("Created." if status == 201 else "Success.", {JSON: answer})
    response: dict[str, Any] = {"description": answer.description}
    if answer.shapes:
        response["content"] = {
            media_type: _content(media_type, shape, schema_of) for media_type, shape in answer.shapes.items()
        }
    return response


def _content(media_type: str, shape: Any, schema_of: dict[Any, Any]) -> dict[str, Any]:
    if media_type == NDJSON or shape is None:
        # An NDJSON body has no JSON schema; `x-line` is the schema of a line.
        return {"schema": {"type": "string"}} | ({} if shape is None else {"x-line": _schema(shape, schema_of)})
    return {"schema": _schema(shape, schema_of)}


def _schema(shape: Any, schema_of: dict[Any, Any]) -> dict[str, Any]:
    choices = [schema_of[one] for one in _choices(shape)]
    found: dict[str, Any] = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return found


def _choices(shape: Any) -> tuple[Any, ...]:
    """Return the members of a union that msgspec cannot describe (several Structs without tags). For any other type,
    return the type itself."""
    if isinstance(shape, AnyOf):
        return shape.shapes
    members = get_args(shape) if get_origin(shape) is UnionType else ()
    structs = [one for one in members if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return members if sum(one.__struct_config__.tag is None for one in structs) > 1 else (shape,)


def _may_be_left_out(shape: Any) -> bool:
    """Return whether every field of the body has a default."""
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return False
    return not any(field.required for field in msgspec.structs.fields(shape))

"""docs/protocol.md, from the declarations, the list of handlers and what each of them says of itself."""

import inspect
import sys
from collections.abc import Iterator

from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.context import Handler
from kwire.wire.apis import APIS
from kwire.wire.schema import LAST_VERSION, Api

_INTRODUCTION = """\
# Protocol

This page is written by `scripts/generate` from `kwire/wire/messages`, where Kafka's APIs are declared, and
`kwire/handlers/__init__.py`, the one list of what is served.

Keys declared: {declared} of the {declared} that Apache Kafka 4.4 serves on its broker listener. Keys served: {served},
each in Kafka 4.4's full range of versions.

A version not in the table closes the connection, except for ApiVersions: there the answer is version 0 with error 35
and our own range, so that a client can try again (KIP-511). Produce 0 to 2 are advertised and answered with an error,
because old librdkafka judges a broker by them (KAFKA-18659).

## Served

| key | API | versions | flexible from |
|---:|---|---|---|"""

_DECLARED_ONLY = """
## Declared and not served yet

The server does not advertise these.

| key | API | versions | flexible from |
|---:|---|---|---|"""

_FACTS = """
## What each does

As the top of its handler says."""

_ERRORS = """
## Error codes

Kafka's own, by number.

| code | name |
|---:|---|"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.format(declared=len(APIS), served=len(HANDLERS))
    for key in sorted(HANDLERS):
        yield _row(HANDLERS[key].api)
    yield _DECLARED_ONLY
    for key in sorted(APIS.keys() - HANDLERS.keys()):
        yield _row(APIS[key])
    yield _FACTS
    for key in sorted(HANDLERS):
        yield from _facts(HANDLERS[key])
    yield _ERRORS
    for code in ErrorCode:
        yield f"| {code.value} | {code.name} |"


def _row(api: Api) -> str:
    flexible = "never" if api.first_flexible == LAST_VERSION else str(api.first_flexible)
    return f"| {api.key} | {api.name} | {api.versions} | {flexible} |"


def _facts(handler: Handler) -> Iterator[str]:
    head, _, rest = (inspect.getdoc(sys.modules[handler.handle.__module__]) or "").partition("\n\n")
    yield f"\n### {handler.api.key}: {' '.join(head.splitlines())}"
    if rest:
        yield f"\n{rest}"

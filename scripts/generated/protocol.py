"""docs/protocol.md, from the list of handlers."""

from collections.abc import Iterator

from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.wire.schema import LAST_VERSION, Api

_INTRODUCTION = """\
# Protocol

This page is written by `scripts/generate` from `kwire/handlers/__init__.py`, the one list of what is served.

A version not in the table closes the connection, except for ApiVersions: there the answer is version 0 with error 35
and our own range, so that a client can try again (KIP-511). Produce 0 to 2 are advertised and answered with an error,
because old librdkafka judges a broker by them (KAFKA-18659).

| key | API | versions | flexible from | declared in |
|---:|---|---|---|---|"""

_ERRORS = """
## Error codes

Kafka's own, by number.

| code | name |
|---:|---|"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for key in sorted(HANDLERS):
        yield _row(HANDLERS[key].api)
    yield _ERRORS
    for code in ErrorCode:
        yield f"| {code.value} | {code.name} |"


def _row(api: Api) -> str:
    flexible = "never" if api.first_flexible == LAST_VERSION else str(api.first_flexible)
    module = api.request.__module__.rpartition(".")[2]
    return f"| {api.key} | {api.name} | {api.versions} | {flexible} | `wire/messages/{module}.py` |"

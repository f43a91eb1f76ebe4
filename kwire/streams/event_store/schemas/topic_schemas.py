"""The schemas of one topic: the event types it accepts and the JSON Schemas of their payloads.

`TopicSchemas` is immutable. Schemas are validated when they are registered (`registration.py`). Stored schemas are not
validated again.
"""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

import jsonschema_rs
import msgspec

from kwire.errors import SchemaViolation, UndescribedViolation
from kwire.streams.event_store.schemas.costs import NO_COST, Cost
from kwire.streams.event_store.schemas.document import Schema
from kwire.streams.event_store.schemas.rules import TypedSchema, compiled, costs_of, inner_values, typed_schemas

# Event types that an error message lists.
TYPES_SHOWN_MAX = 20
_PROBLEM_LENGTH_MAX = 200
_NAME_LENGTH_SHOWN = 100
# Describing a violation takes longer than detecting it. At each level of the payload, the library keeps every
# alternative that it tried, with a copy of the value. If the work or the memory may exceed these limits, the violation
# is not described.
DESCRIPTION_FACTOR = 5
DESCRIPTION_WORK_MAX = 100_000_000
DESCRIPTION_BYTES_MAX = 64 * 1024 * 1024
# `jsonschema-rs` does not describe violations in payloads that are nested deeper.
_LEVELS_MAX = 255

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Check:
    """The validator of one event type. It is compiled at its first use, because compiling may take milliseconds."""

    __slots__ = ("_schema", "_validator", "cost")

    def __init__(self, schema: Schema, cost: Cost) -> None:
        self._schema = schema
        self._validator: jsonschema_rs.Validator | None = None
        self.cost = cost

    @property
    def validator(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            self._validator = compiled(self._schema)
        return self._validator


class _Refused(NamedTuple):
    """An invalid payload and the check that it failed."""

    check: _Check
    instance: object


class TopicSchemas:
    """The compiled schemas of a topic by event type."""

    __slots__ = ("_checks", "_typed", "cost_max", "size_bytes")

    def __init__(self, typed: Sequence[TypedSchema], costs: Mapping[str, Cost]) -> None:
        """`costs` has the cost of checking a payload, by event type."""
        self._typed = tuple(typed)
        self._checks = {one.event_type: _Check(one.schema, costs[one.event_type]) for one in typed}
        self.size_bytes = len(msgspec.json.encode(self.as_json()))
        self.cost_max = reduce(Cost.maximum, costs.values())

    @classmethod
    def parse(cls, raw: object) -> Self:
        """Validate schemas and return them; raises InvalidSchema.

        This may take seconds, so the server validates schemas in a worker process and then calls `validated`.
        """
        typed = typed_schemas(raw)
        return cls(typed, costs_of(typed))

    @classmethod
    def validated(cls, raw: object, costs: Mapping[str, Cost]) -> Self:
        """Create an instance from schemas that a worker process has validated. This is quick."""
        return cls(typed_schemas(raw), costs)

    @classmethod
    def stored(cls, value: Mapping[str, Any]) -> Self:
        return cls.validated(value["schemas"], {name: Cost(*cost) for name, cost in value["costs"].items()})

    def value(self) -> dict[str, Any]:
        """Return the value for the metadata store."""
        return {"schemas": self.as_json(), "costs": {name: list(check.cost) for name, check in self._checks.items()}}

    def as_json(self) -> list[dict[str, Any]]:
        """Return the schemas as the client sent them."""
        return [one.given for one in self._typed]

    @property
    def types(self) -> list[str]:
        return list(self._checks)

    # --- changes

    def with_added(self, raw: object) -> list[dict[str, Any]]:
        """Return all schemas as JSON, with those of `raw` added.

        A schema of `raw` replaces the schema of the same event type. A schema of a new event type is added at the end.
        """
        given = {one.event_type: one.given for one in self._typed}
        given |= {one.event_type: one.given for one in typed_schemas(raw)}
        return list(given.values())

    # --- events

    def work(self, event_type: str, payload: bytes) -> int:
        """Return an upper bound of the work of checking a payload."""
        check = self._checks.get(event_type)
        return (NO_COST if check is None else check.cost).work(payload)

    def check(self, event_type: str, payload: bytes) -> None:
        """Raise SchemaViolation if the event is invalid."""
        found = self._refused(event_type, payload)
        if found is not None:
            raise _violation(event_type, found, payload, _levels(found.instance), DESCRIPTION_WORK_MAX)

    def check_inline(self, event_type: str, payload: bytes, description_work_max: int) -> None:
        """Raise SchemaViolation if the event is invalid. Use this on the event loop.

        Raises UndescribedViolation if describing the violation may take more work than `description_work_max`.
        """
        found = self._refused(event_type, payload)
        if found is not None:
            levels_max = 1 + payload.count(b"[") + payload.count(b"{")
            raise _violation(event_type, found, payload, levels_max, description_work_max)

    def _refused(self, event_type: str, payload: bytes) -> _Refused | None:
        """Return the failed check and the payload; None if the event is valid."""
        check = self._checks.get(event_type)
        if check is None:
            raise SchemaViolation(event_type, "$", f"the topic has no schema for this type; it has {self._shown()}")
        try:
            instance = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaViolation(event_type, "$", f"the payload is not JSON: {error}") from None
        # If an object has a name twice, some JSON libraries use the first value and some the last. A reader might
        # therefore use a value that was not checked.
        if _encode(instance) != payload and (name := _repeated_name(payload, instance)) is not None:
            raise SchemaViolation(event_type, "$", f"an object has the name {name[:_NAME_LENGTH_SHOWN]!r} twice")
        return None if check.validator.is_valid(instance) else _Refused(check, instance)

    def _shown(self) -> str:
        shown = ", ".join(repr(name) for name in self.types[:TYPES_SHOWN_MAX])
        return shown + (", …" if len(self._typed) > TYPES_SHOWN_MAX else "")


def _violation(
    event_type: str, refused: _Refused, payload: bytes, levels_max: int, description_work_max: int
) -> SchemaViolation:
    work = levels_max * (DESCRIPTION_FACTOR * refused.check.cost.work(payload) + len(payload))
    if (
        levels_max <= _LEVELS_MAX
        and work <= description_work_max
        and levels_max * len(payload) <= DESCRIPTION_BYTES_MAX
    ):
        try:
            refused.check.validator.validate(refused.instance)
        except jsonschema_rs.ValidationError as error:
            return SchemaViolation(event_type, path_text(error.instance_path), _shortened(error.message))
    return UndescribedViolation(event_type, "$", "the payload violates the schema; it is too large to report where")


class _Repeated(Exception):
    """A JSON object contains a name twice."""


def _repeated_name(payload: bytes, instance: object) -> str | None:
    """Return a name that an object contains twice, or None. `instance` is the payload as decoded by `msgspec`."""
    if _encode(instance) == msgspec.json.format(payload, indent=-1):
        return None  # the payload and its encoding differ only in white space
    try:
        json.loads(payload.decode(), object_pairs_hook=_check_names)
    except _Repeated as error:
        return str(error)
    return None


def _check_names(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise _Repeated(name)
            names.add(name)


def _levels(instance: object) -> int:
    """Return the nesting depth of a value."""
    levels, level = 0, [instance]
    while level:
        levels += 1
        level = [inner for one in level for inner in inner_values(one)]
    return levels


def _shortened(message: str) -> str:
    """Remove the middle of a long message. Messages usually begin with the value and end with the problem."""
    half = _PROBLEM_LENGTH_MAX // 2
    return message if len(message) <= _PROBLEM_LENGTH_MAX else f"{message[:half]} … {message[-half:]}"


def path_text(path: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)

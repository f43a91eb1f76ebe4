"""The schemas of one topic: which event types it takes, and what their payloads have to be.

An object of this kind never changes. Schemas are checked thoroughly when they are registered (`schema_judging.py`); one
that was stored is only compiled.
"""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

import jsonschema_rs
import msgspec

from kwire.broker.store.schema_costs import NO_COST, Cost
from kwire.broker.store.schema_document import Schema
from kwire.broker.store.schema_rules import TypedSchema, compiled, costs_of, inner_values, typed_schemas
from kwire.errors import SchemaViolation, UnwordedViolation

# Names that a refusal tells.
TYPES_SHOWN_MAX = 20
_PROBLEM_LENGTH_MAX = 200
_NAME_LENGTH_SHOWN = 100
# To say what is wrong takes more than to see that something is: all that was tried is kept, at each level of the
# payload, with a copy of the value. Nobody says it if that is more than so much work, or so many bytes.
WORDS_FACTOR = 5
WORDS_WORK_MAX = 100_000_000
WORDS_BYTES_MAX = 64 * 1024 * 1024
# `jsonschema-rs` tells nothing of what is nested deeper.
_LEVELS_MAX = 255

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Check:
    """Compiled with the first event of its type: large schemas take some milliseconds, and a topic may have many."""

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
    """What refused a payload, and the payload."""

    check: _Check
    instance: object


class TopicSchemas:
    """By event type."""

    __slots__ = ("_checks", "_typed", "cost_max", "size_bytes")

    def __init__(self, typed: Sequence[TypedSchema], costs: Mapping[str, Cost]) -> None:
        """Of schemas that were judged before; `costs` is what came of it."""
        self._typed = tuple(typed)
        self._checks = {one.event_type: _Check(one.schema, costs[one.event_type]) for one in typed}
        self.size_bytes = len(msgspec.json.encode(self.as_json()))
        self.cost_max = reduce(Cost.with_most_of, costs.values())

    @classmethod
    def parse(cls, raw: object) -> Self:
        """Schemas as somebody gives them; raises InvalidSchema. It may take long: a server has a worker do that."""
        typed = typed_schemas(raw)
        return cls(typed, costs_of(typed))

    @classmethod
    def judged(cls, raw: object, costs: Mapping[str, Cost]) -> Self:
        """The same, of what a worker has judged; quick."""
        return cls(typed_schemas(raw), costs)

    @classmethod
    def stored(cls, value: Mapping[str, Any]) -> Self:
        return cls.judged(value["schemas"], {name: Cost(*cost) for name, cost in value["costs"].items()})

    def value(self) -> dict[str, Any]:
        """What is stored of them."""
        return {"schemas": self.as_json(), "costs": {name: list(check.cost) for name, check in self._checks.items()}}

    def as_json(self) -> list[dict[str, Any]]:
        """As they were given."""
        return [one.given for one in self._typed]

    @property
    def types(self) -> list[str]:
        return list(self._checks)

    # --- changes

    def with_added(self, raw: object) -> list[dict[str, Any]]:
        """All of these as JSON, those of `raw` in the place of their predecessors or behind them."""
        given = {one.event_type: one.given for one in self._typed}
        given |= {one.event_type: one.given for one in typed_schemas(raw)}
        return list(given.values())

    # --- events

    def work(self, event_type: str, payload: bytes) -> int:
        """How much there is to do for a payload, at the worst."""
        check = self._checks.get(event_type)
        return (NO_COST if check is None else check.cost).work(payload)

    def check(self, event_type: str, payload: bytes) -> None:
        """Raise SchemaViolation if the topic does not take this event."""
        found = self._refused(event_type, payload)
        if found is not None:
            raise _violation(event_type, found, payload, _levels(found.instance), WORDS_WORK_MAX)

    def check_here(self, event_type: str, payload: bytes, words_work_max: int) -> None:
        """The same on the loop: raises UnwordedViolation where to say what is wrong may be more work than that."""
        found = self._refused(event_type, payload)
        if found is not None:
            levels_max = 1 + payload.count(b"[") + payload.count(b"{")
            raise _violation(event_type, found, payload, levels_max, words_work_max)

    def _refused(self, event_type: str, payload: bytes) -> _Refused | None:
        """By what an event is refused, and its payload; None if it is taken."""
        check = self._checks.get(event_type)
        if check is None:
            raise SchemaViolation(event_type, "$", f"the topic has no schema for this type; it has {self._shown()}")
        try:
            instance = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaViolation(event_type, "$", f"the payload is not JSON: {error}") from None
        # Of a name that stands twice one library sees the first, another the last: then nobody knows what was checked.
        if _encode(instance) != payload and (name := _repeated_name(payload, instance)) is not None:
            raise SchemaViolation(event_type, "$", f"an object has the name {name[:_NAME_LENGTH_SHOWN]!r} twice")
        return None if check.validator.is_valid(instance) else _Refused(check, instance)

    def _shown(self) -> str:
        shown = ", ".join(repr(name) for name in self.types[:TYPES_SHOWN_MAX])
        return shown + (", …" if len(self._typed) > TYPES_SHOWN_MAX else "")


def _violation(
    event_type: str, refused: _Refused, payload: bytes, levels_max: int, words_work_max: int
) -> SchemaViolation:
    work = levels_max * (WORDS_FACTOR * refused.check.cost.work(payload) + len(payload))
    if levels_max <= _LEVELS_MAX and work <= words_work_max and levels_max * len(payload) <= WORDS_BYTES_MAX:
        try:
            refused.check.validator.validate(refused.instance)
        except jsonschema_rs.ValidationError as error:
            return SchemaViolation(event_type, path_text(error.instance_path), _shortened(error.message))
    return UnwordedViolation(event_type, "$", "it does not fit the schema; it is too large or too deep to say where")


class _Repeated(Exception):
    """An object has a name twice."""


def _repeated_name(payload: bytes, instance: object) -> str | None:
    """A name that an object has twice; `instance` is the payload as `msgspec` reads it, which keeps the last."""
    if _encode(instance) == msgspec.json.format(payload, indent=-1):
        return None  # it only has spaces
    try:
        json.loads(payload.decode(), object_pairs_hook=_check_names)
    except _Repeated as error:
        return str(error)
    return None


def _check_names(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for number, name in enumerate(names) if name in names[:number]))


def _levels(instance: object) -> int:
    """How deep a value is nested."""
    levels, level = 0, [instance]
    while level:
        levels += 1
        level = [inner for one in level for inner in inner_values(one)]
    return levels


def _shortened(message: str) -> str:
    """It quotes the value, in front as a rule, and behind it says what is wrong."""
    half = _PROBLEM_LENGTH_MAX // 2
    return message if len(message) <= _PROBLEM_LENGTH_MAX else f"{message[:half]} … {message[-half:]}"


def path_text(path: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)

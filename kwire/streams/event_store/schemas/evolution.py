"""How the schemas of a topic may change: by additions only, so that what was right before stays right for its readers.

New event types, new optional properties of objects, new definitions, and whatever is only a note (titles, examples).
Everything else has to stay as it is: a type that is no longer taken, a property that is gone, another limit.
"""

from collections.abc import Mapping, Sequence

from kwire.broker.store.schema_document import Schema
from kwire.broker.store.schema_rules import TypedSchema, canonical
from kwire.errors import IncompatibleSchema

# They say something to people and nothing about what is taken.
NOTES = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
# Schemas inside a schema that may have additions of their own.
_INNER = ("items", "additionalProperties")
_INNER_MAPS = ("$defs", "definitions")


def check_addition(old: Sequence[TypedSchema], new: Sequence[TypedSchema]) -> None:
    """Raise IncompatibleSchema unless `new` is `old` and more."""
    by_type: Mapping[str, TypedSchema] = {one.event_type: one for one in new}
    for one in old:
        now = by_type.get(one.event_type)
        if now is None:
            raise IncompatibleSchema(one.event_type, "an event type cannot be taken away", "$")
        _Comparison(one.event_type).check(one.schema, now.schema, "$")


class _Comparison:
    def __init__(self, event_type: str) -> None:
        self._event_type = event_type

    def check(self, old: object, new: object, path: str) -> None:
        """Both are schemas, as deep as the rules allow."""
        if canonical(old) == canonical(new):
            return
        if not isinstance(old, dict) or not isinstance(new, dict):
            raise self._refusal("it would take something else", path)
        for name in sorted((old.keys() | new.keys()) - NOTES):
            where = f"{path}.{name}"
            if name == "properties":
                self._check_properties(old, new, where)
            elif name in _INNER_MAPS:
                self._check_map(old.get(name, {}), new.get(name, {}), where)
            elif name in _INNER and name in old and name in new:
                self.check(old[name], new[name], where)
            elif name == "required" and name in old and name in new:
                if set(old[name]) != set(new[name]):
                    raise self._refusal("what is required cannot change: a new property has to be optional", where)
            elif name not in old:
                raise self._refusal("this is a new rule: only optional properties and event types can be added", where)
            elif name not in new:
                raise self._refusal("this rule cannot be taken away", where)
            elif canonical(old[name]) != canonical(new[name]):
                raise self._refusal("this rule cannot change", where)

    def _check_properties(self, old: Schema, new: Schema, where: str) -> None:
        before, now = old.get("properties", {}), new.get("properties", {})
        self._check_map(before, now, where)
        for name in now.keys() - before.keys():
            if name in new.get("required", ()):
                raise self._refusal("a new property has to be optional", f"{where}.{name}")

    def _check_map(self, old: Schema, new: Schema, where: str) -> None:
        for name, schema in old.items():
            if name not in new:
                raise self._refusal("it cannot be taken away", f"{where}.{name}")
            self.check(schema, new[name], f"{where}.{name}")

    def _refusal(self, problem: str, path: str) -> IncompatibleSchema:
        return IncompatibleSchema(self._event_type, problem, path)

"""How the schemas of a topic may change: by additions only, so that readers of older events keep working.

A change may add event types, optional properties of objects, and definitions. It may change annotations (titles,
examples). All other changes are refused: for example, event types and properties cannot be removed, and limits cannot
change.
"""

from collections.abc import Mapping, Sequence

from kwire.errors import IncompatibleSchema
from kwire.streams.event_store.schemas.document import Schema
from kwire.streams.event_store.schemas.rules import TypedSchema, canonical

# Annotations: they do not affect which payloads are valid.
ANNOTATIONS = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
# Keywords that contain schemas. Additions to these inner schemas are allowed too.
_INNER = ("items", "additionalProperties")
_INNER_MAPS = ("$defs", "definitions")


def check_addition(old: Sequence[TypedSchema], new: Sequence[TypedSchema]) -> None:
    """Raise IncompatibleSchema unless `new` is `old` plus additions."""
    by_type: Mapping[str, TypedSchema] = {one.event_type: one for one in new}
    for one in old:
        now = by_type.get(one.event_type)
        if now is None:
            raise IncompatibleSchema(one.event_type, "an event type cannot be removed", "$")
        _Comparison(one.event_type).check(one.schema, now.schema, "$")


class _Comparison:
    def __init__(self, event_type: str) -> None:
        self._event_type = event_type

    def check(self, old: object, new: object, path: str) -> None:
        """Raise IncompatibleSchema unless `new` is `old` plus additions. `typed_schemas` limits the depth of both."""
        if canonical(old) == canonical(new):
            return
        if not isinstance(old, dict) or not isinstance(new, dict):
            raise self._refusal("a schema cannot be replaced by another one here", path)
        for name in sorted((old.keys() | new.keys()) - ANNOTATIONS):
            where = f"{path}.{name}"
            if name == "properties":
                self._check_properties(old, new, where)
            elif name in _INNER_MAPS:
                self._check_map(old.get(name, {}), new.get(name, {}), where)
            elif name in _INNER and name in old and name in new:
                self.check(old[name], new[name], where)
            elif name == "required" and name in old and name in new:
                if set(old[name]) != set(new[name]):
                    raise self._refusal("the required properties cannot change: a new property must be optional", where)
            elif name not in old:
                raise self._refusal("a constraint cannot be added: only optional properties and event types can", where)
            elif name not in new:
                raise self._refusal("this constraint cannot be removed", where)
            elif canonical(old[name]) != canonical(new[name]):
                raise self._refusal("this constraint cannot change", where)

    def _check_properties(self, old: Schema, new: Schema, where: str) -> None:
        before, now = old.get("properties", {}), new.get("properties", {})
        self._check_map(before, now, where)
        for name in now.keys() - before.keys():
            if name in new.get("required", ()):
                raise self._refusal("a new property must be optional", f"{where}.{name}")

    def _check_map(self, old: Schema, new: Schema, where: str) -> None:
        for name, schema in old.items():
            if name not in new:
                raise self._refusal("it cannot be removed", f"{where}.{name}")
            self.check(schema, new[name], f"{where}.{name}")

    def _refusal(self, problem: str, path: str) -> IncompatibleSchema:
        return IncompatibleSchema(self._event_type, problem, path)

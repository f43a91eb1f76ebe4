"""A schema as a document: its subschemas by JSON pointer and by anchor, its patterns and its references.

References must refer to parts of the same document. Other documents are never loaded.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kwire.errors import InvalidSchema

Schema = dict[str, Any]

# Schemas of one topic. Each schema is a document.
SCHEMAS_MAX = 100

# The following constants are the keywords that contain schemas.
# These inner schemas apply to the same location of a payload as the enclosing schema.
IN_PLACE = ("not", "if", "then", "else")
IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_MAPS = ("dependentSchemas",)
REFERENCES = ("$ref", "$dynamicRef")
# These inner schemas apply to any location directly inside that location.
ANY_CHILD = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames")
ANY_CHILD_MAPS = ("patternProperties",)
# Each of these inner schemas applies to one location directly inside that location.
ONE_CHILD_LISTS = ("prefixItems",)
ONE_CHILD_MAPS = ("properties",)
# These inner schemas apply to no location by themselves.
_NOT_APPLIED = ("contentSchema",)
_NOT_APPLIED_MAPS = ("$defs", "definitions")

_SINGLES = (*IN_PLACE, *ANY_CHILD, *_NOT_APPLIED)
_LISTS = (*IN_PLACE_LISTS, *ONE_CHILD_LISTS)
_MAPS = (*IN_PLACE_MAPS, *ANY_CHILD_MAPS, *ONE_CHILD_MAPS, *_NOT_APPLIED_MAPS)


class Pattern(NamedTuple):
    """A regular expression of a schema, and its path for error messages."""

    text: str
    where: str


class Document:
    """A schema whose subschemas have been checked and indexed. `target` resolves references."""

    def __init__(self, root: Schema, path: str) -> None:
        self.root = root
        self.path = path
        # All subschemas by JSON pointer, and those with an anchor by anchor.
        self._by_pointer: dict[str, Any] = {}
        self._by_anchor: dict[str, Any] = {}
        self.patterns: list[Pattern] = []
        for pointer, where, schema in _subschemas(root, "", path):
            self._by_pointer[pointer] = schema
            if isinstance(schema, dict):
                self._check_subschema(schema, where, is_root=schema is root)
                self.patterns += _patterns(schema, where)

    def _check_subschema(self, schema: Schema, where: str, *, is_root: bool) -> None:
        if not is_root:
            for name in ("$id", "$schema"):
                if name in schema:
                    raise InvalidSchema(f"{name} is allowed only at the top level", f"{where}.{name}")
        for name in REFERENCES:
            reference = schema.get(name)
            if reference is not None and not reference.startswith("#"):
                raise InvalidSchema(
                    f"{name} must refer to a part of the same schema (#/$defs/…); nothing is loaded from elsewhere",
                    f"{where}.{name}",
                )
        for name in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(name)
            if anchor is None:
                continue
            if self._by_anchor.get(anchor, schema) is not schema:
                raise InvalidSchema(f"the anchor {anchor!r} is defined twice", f"{where}.{name}")
            self._by_anchor[anchor] = schema

    def target(self, reference: str) -> Any:
        fragment = _unescaped(reference[1:])
        found = self._by_pointer if not fragment or fragment.startswith("/") else self._by_anchor
        if fragment not in found:
            raise InvalidSchema(f"{reference!r} does not refer to a schema of this document", self.path)
        return found[fragment]


def _unescaped(fragment: str) -> str:
    if "%" not in fragment:
        return fragment
    from urllib.parse import unquote

    return unquote(fragment)


def _subschemas(schema: Any, pointer: str, where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (JSON pointer, path for messages, schema) for a schema and for all schemas inside it.

    `rules.py` has already checked the types of the keywords and the depth.
    """
    yield pointer, where, schema
    if not isinstance(schema, dict):
        return
    for name in _SINGLES:
        if name in schema:
            yield from _subschemas(schema[name], f"{pointer}/{name}", f"{where}.{name}")
    for name in _LISTS:
        for number, one in enumerate(schema.get(name, ())):
            yield from _subschemas(one, f"{pointer}/{name}/{number}", f"{where}.{name}[{number}]")
    for name in _MAPS:
        for key, one in schema.get(name, {}).items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield from _subschemas(one, f"{pointer}/{name}/{escaped}", f"{where}.{name}.{key}")


def _patterns(schema: Schema, where: str) -> list[Pattern]:
    found = [Pattern(key, f"{where}.patternProperties") for key in schema.get("patternProperties", ())]
    if "pattern" in schema:
        found.append(Pattern(schema["pattern"], f"{where}.pattern"))
    return found

"""One schema as a document: the schemas inside it, where they stand, the names they have and what refers to what.

References stay inside the document, so it is complete in itself; nothing is ever loaded from elsewhere.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kwire.errors import InvalidSchema

Schema = dict[str, Any]

# Of a topic; each is a document of its own.
SCHEMAS_MAX = 100

# Where schemas stand inside a schema. These apply to the same place of a payload as the schema around them ...
SAME = ("not", "if", "then", "else")
SAME_LISTS = ("allOf", "anyOf", "oneOf")
SAME_MAPS = ("dependentSchemas",)
REFERENCES = ("$ref", "$dynamicRef")
# ... these to any of the places inside it ...
ANY = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames")
ANY_MAPS = ("patternProperties",)
# ... these to one of them, and these to none.
ONE_LISTS = ("prefixItems",)
ONE_MAPS = ("properties",)
_NOWHERE = ("contentSchema",)
_NOWHERE_MAPS = ("$defs", "definitions")

_SINGLES = (*SAME, *ANY, *_NOWHERE)
_LISTS = (*SAME_LISTS, *ONE_LISTS)
_MAPS = (*SAME_MAPS, *ANY_MAPS, *ONE_MAPS, *_NOWHERE_MAPS)


class Pattern(NamedTuple):
    text: str
    # The place that a refusal names.
    where: str


class Document:
    """A schema whose every place was looked at. References are resolved by `target`."""

    def __init__(self, root: Schema, path: str) -> None:
        self.root = root
        self.path = path
        # Every schema inside it by its JSON pointer, and those that have a name.
        self._by_pointer: dict[str, Any] = {}
        self._by_anchor: dict[str, Any] = {}
        self.patterns: list[Pattern] = []
        for pointer, where, schema in _subschemas(root, "", path):
            self._by_pointer[pointer] = schema
            if isinstance(schema, dict):
                self._check_place(schema, where, is_root=schema is root)
                self.patterns += _patterns(schema, where)

    def _check_place(self, schema: Schema, where: str, *, is_root: bool) -> None:
        if not is_root:
            for name in ("$id", "$schema"):
                if name in schema:
                    raise InvalidSchema(f"{name} may stand only at the top", f"{where}.{name}")
        for name in REFERENCES:
            reference = schema.get(name)
            if reference is not None and not reference.startswith("#"):
                raise InvalidSchema(
                    f"{name} has to stay inside the schema (#/$defs/…); nothing is loaded from elsewhere",
                    f"{where}.{name}",
                )
        for name in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(name)
            if anchor is None:
                continue
            if self._by_anchor.get(anchor, schema) is not schema:
                raise InvalidSchema(f"there are two places named {anchor!r}", f"{where}.{name}")
            self._by_anchor[anchor] = schema

    def target(self, reference: str) -> Any:
        fragment = _unescaped(reference[1:])
        found = self._by_pointer if not fragment or fragment.startswith("/") else self._by_anchor
        if fragment not in found:
            raise InvalidSchema(f"{reference!r} is no schema of this document", self.path)
        return found[fragment]


def _unescaped(fragment: str) -> str:
    if "%" not in fragment:
        return fragment
    from urllib.parse import unquote

    return unquote(fragment)


def _subschemas(schema: Any, pointer: str, where: str) -> Iterator[tuple[str, str, Any]]:
    """(JSON pointer, path to show, schema) of this one and all inside it. Its shape has been checked, and its depth."""
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

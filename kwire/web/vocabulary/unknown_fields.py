"""Errors about unknown fields of JSON bodies and query strings: what this API calls the field, or which fields it has.

The error of msgspec names the unknown field and its place. From the place and the type of the whole body follows the
object in question.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from kwire.web.vocabulary.names import API_BY_MODULE, CONCEPTS

# The maximum number of cached types of bodies. There are about a hundred.
SHAPES_MAX = 500
# The error lists the fields of an object if it has at most this many.
LISTED_FIELDS_MAX = 15
NAME_LENGTH_MAX = 100

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `(?P<place>\$[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|\.[^.\[]+")
# The tag of the commands of rooms. A command is an envelope: its `payload` is not the data of an event.
_COMMAND_TAG = "command"


def sentence_of(error: msgspec.ValidationError, shape: Any) -> str:
    """Return the message of an error in decoding a `shape`, with a lower-case first letter.

    For an unknown field, the message says what this API calls it. Otherwise it is the message of msgspec, which names
    the field as a path from `$`.
    """
    text = str(error)
    found = _UNKNOWN_FIELD.fullmatch(text)
    if found is None:
        return text[:1].lower() + text[1:]
    name, place = found["name"], found["place"] or "$"
    shown = name if len(name) <= NAME_LENGTH_MAX else name[:NAME_LENGTH_MAX] + "…"
    where = "" if place == "$" else f" in {place}"
    return f"unknown field '{shown}'{where}{_hint(name, _objects_at(shape, place))}"


def _hint(name: str, objects: Sequence[inspect.StructType]) -> str:
    for one in objects:
        known = own_name(name, one.cls, [field.encode_name for field in one.fields])
        if known is not None:
            return f": this API calls it '{known}'"
    fields = list(dict.fromkeys(field.encode_name for one in objects for field in one.fields))
    if not 0 < len(fields) <= LISTED_FIELDS_MAX:
        return ""
    return f": the known fields are {', '.join(fields)}"


def own_name(name: str, struct: type[msgspec.Struct], fields: Sequence[str]) -> str | None:
    """Return the field of a request type that means the same as `name`; None if there is none."""
    spelling = _spelling(name)
    for field in fields:
        if _spelling(field) == spelling:
            return field
    api = next((api for module, api in API_BY_MODULE.items() if _is_in(struct.__module__, module)), None)
    if api is None or struct.__struct_config__.tag_field == _COMMAND_TAG:
        return None
    for concept in CONCEPTS:
        if name in concept.all_names or spelling in {_spelling(one) for one in concept.all_names}:
            for own in concept.names.get(api, ()):
                if own in fields:
                    return own
    return None


def _spelling(name: str) -> str:
    """Return a name without what differs between camelCase, snake_case and kebab-case."""
    return name.replace("_", "").replace("-", "").lower()


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _objects_at(shape: Any, place: str) -> list[inspect.StructType]:
    """Return the types of the object at a place of the body. There are several if the body is a union."""
    types = _alternatives(_type_info(shape))
    for step in _STEP.findall(place):
        inner: list[inspect.Type] = []
        for one in types:
            if step.startswith("["):
                inner += _elements(one)
            elif isinstance(one, inspect.StructType):
                inner += [field.type for field in one.fields if field.encode_name == step[1:]]
        types = [found for one in inner for found in _alternatives(one)]
    return [one for one in types if isinstance(one, inspect.StructType)]


@lru_cache(SHAPES_MAX)
def _type_info(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _alternatives(one: inspect.Type) -> list[inspect.Type]:
    if isinstance(one, inspect.Metadata):
        return _alternatives(one.type)
    if isinstance(one, inspect.UnionType):
        return [found for other in one.types for found in _alternatives(other)]
    return [one]


def _elements(one: inspect.Type) -> Iterable[inspect.Type]:
    if isinstance(one, inspect.DictType):
        return (one.value_type,)
    if isinstance(one, inspect.CollectionType):
        return (one.item_type,)
    return ()

"""The JSON of an event made again from the columns of its row.

A table has the fields that the schemas name; what the schemas leave open is text in it, a JSON string without its
quotes and anything else as JSON (columns.py). So text may be meant either way. An object or an array is taken for JSON
and everything else for a string, and where the schema of the event refuses that, it is taken the other way. Fields that
were null are left out, unless the schema wants them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from kwire.pipeline.columns import TEXT, Array, Column, ColumnType, Struct

Path = tuple[str | int, ...]


class Payloads:
    """Of one topic: the columns of its payload, and the schemas of its event types."""

    def __init__(self, columns: Sequence[Column], schemas: Sequence[Mapping[str, Any]]) -> None:
        self._type = Struct(tuple(columns))
        self._validators = dict(_validator(schema) for schema in schemas)

    def value(self, event_type: str, row_json: str) -> bytes:
        """`row_json` is the row's payload columns as Spark writes them, without nulls."""
        payload = json.loads(row_json)
        open_texts = dict(_open_texts(payload, self._type, ()))
        validator = self._validators.get(event_type)
        is_changed = False
        for path, meant in list(open_texts.items()):
            if isinstance(meant, (dict, list)):
                _swap(payload, path, open_texts)
                is_changed = True
        if validator is not None:
            # It ends: each text is taken the other way once at most, and each field set to null once.
            while _corrected(payload, validator, open_texts):
                is_changed = True
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":")) if is_changed else row_json
        return text.encode()


def _validator(schema: Mapping[str, Any]) -> tuple[str, jsonschema_rs.Validator]:
    """Where there is no `eventType`, `type` is the event type and no keyword."""
    name = "eventType" if "eventType" in schema else "type"
    document = {key: value for key, value in schema.items() if key != name}
    return schema[name], jsonschema_rs.Draft202012Validator(document, validate_formats=False, offline=True)


def _open_texts(value: Any, kind: ColumnType, path: Path) -> Iterator[tuple[Path, Any]]:
    """Where text could be JSON, and what it would mean then."""
    if isinstance(kind, Struct) and isinstance(value, dict):
        for field in kind.fields:
            if field.name in value:
                yield from _open_texts(value[field.name], field.type, (*path, field.name))
    elif isinstance(kind, Array) and isinstance(value, list):
        for index, element in enumerate(value):
            yield from _open_texts(element, kind.element, (*path, index))
    elif kind == TEXT and isinstance(value, str):
        try:
            meant = json.loads(value, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return
        if not isinstance(meant, str):
            yield path, meant


def _no_number(word: str) -> NoReturn:
    """Python would take NaN and Infinity, JSON does not."""
    raise ValueError(word)


def _swap(payload: Any, path: Path, open_texts: dict[Path, Any]) -> None:
    """Take a text the other way; the way it was is what it can be swapped with again."""
    holder = payload
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]], open_texts[path] = open_texts[path], holder[path[-1]]


def _corrected(payload: Any, validator: jsonschema_rs.Validator, open_texts: dict[Path, Any]) -> bool:
    """Whether something that the schema refuses could be put another way."""
    swapped: set[Path] = set()
    is_corrected = False
    for error in list(validator.iter_errors(payload)):
        place: Path = tuple(error.instance_path)
        # What lies inside an open text goes with it.
        around = [place[:depth] for depth in range(len(place) + 1)]
        if not swapped.isdisjoint(around):
            continue
        path = next((one for one in around if one in open_texts), None)
        if path is not None:
            _swap(payload, path, open_texts)
            del open_texts[path]
            swapped.add(path)
            is_corrected = True
        elif error.kind.name == "required":
            holder, wanted = _at(payload, place), getattr(error.kind, "property", None)
            if isinstance(holder, dict) and wanted not in holder:
                holder[wanted] = None
                is_corrected = True
    return is_corrected


def _at(payload: Any, path: Path) -> Any:
    for step in path:
        payload = payload[step]
    return payload

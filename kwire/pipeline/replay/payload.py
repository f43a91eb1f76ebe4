"""Rebuilds the JSON of an event from the columns of its row.

The table has a column for each field that the schemas name. If a schema gives no type to a field, the column has text:
strings without their quotes, other values as JSON (columns.py). So such text is ambiguous: `12` may be a number or a
string. First, text that is a JSON object or array is decoded, and other text is used as a string. If the event's schema
rejects the result, the other interpretation is used. Null fields are omitted, unless the schema requires them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from kwire.pipeline.columns import TEXT, Array, Column, ColumnType, Struct

Path = tuple[str | int, ...]


class Payloads:
    """Rebuilds the payloads of one topic from the payload columns of its table and the schemas of its event types."""

    def __init__(self, columns: Sequence[Column], schemas: Sequence[Mapping[str, Any]]) -> None:
        self._type = Struct(tuple(columns))
        self._validators = dict(_validator(schema) for schema in schemas)

    def value(self, event_type: str, row_json: str) -> bytes:
        """Return the payload of a row. `row_json` is Spark's JSON of the row's payload columns, without null fields."""
        payload = json.loads(row_json)
        open_texts = dict(_open_texts(payload, self._type, ()))
        validator = self._validators.get(event_type)
        is_changed = False
        for path, meant in list(open_texts.items()):
            if isinstance(meant, (dict, list)):
                _swap(payload, path, open_texts)
                is_changed = True
        if validator is not None:
            # The loop ends, because `_corrected` changes each text at most once and adds each null field at most once.
            while _corrected(payload, validator, open_texts):
                is_changed = True
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":")) if is_changed else row_json
        return text.encode()


def _validator(schema: Mapping[str, Any]) -> tuple[str, jsonschema_rs.Validator]:
    """Return the event type of a schema, and the validator of its payloads.

    If the schema has no key `eventType`, the key `type` holds the event type, so it is not a JSON Schema keyword.
    """
    name = "eventType" if "eventType" in schema else "type"
    document = {key: value for key, value in schema.items() if key != name}
    return schema[name], jsonschema_rs.Draft202012Validator(document, validate_formats=False, offline=True)


def _open_texts(value: Any, kind: ColumnType, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the decoded value of each text that is valid JSON, except JSON strings."""
    if isinstance(kind, Struct) and isinstance(value, dict):
        for field in kind.fields:
            if field.name in value:
                yield from _open_texts(value[field.name], field.type, (*path, field.name))
    elif isinstance(kind, Array) and isinstance(value, list):
        for index, element in enumerate(value):
            yield from _open_texts(element, kind.element, (*path, index))
    elif kind == TEXT and isinstance(value, str):
        try:
            meant = json.loads(value, parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            return
        if not isinstance(meant, str):
            yield path, meant


def _reject_constant(word: str) -> NoReturn:
    """Reject NaN and Infinity. Python's decoder accepts them, but they are not JSON."""
    raise ValueError(word)


def _swap(payload: Any, path: Path, open_texts: dict[Path, Any]) -> None:
    """Exchange the value at `path` in the payload with the other interpretation of the text, in `open_texts`."""
    holder = payload
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]], open_texts[path] = open_texts[path], holder[path[-1]]


def _corrected(payload: Any, validator: jsonschema_rs.Validator, open_texts: dict[Path, Any]) -> bool:
    """Correct the parts of the payload that the schema rejects. Return whether something was changed.

    A text gets its other interpretation, and a missing required field becomes null.
    """
    swapped: set[Path] = set()
    is_corrected = False
    for error in list(validator.iter_errors(payload)):
        location: Path = tuple(error.instance_path)
        # The error may be inside a decoded text. Then the whole text gets its other interpretation.
        around = [location[:depth] for depth in range(len(location) + 1)]
        if not swapped.isdisjoint(around):
            continue
        path = next((one for one in around if one in open_texts), None)
        if path is not None:
            _swap(payload, path, open_texts)
            del open_texts[path]
            swapped.add(path)
            is_corrected = True
        elif error.kind.name == "required":
            holder, wanted = _at(payload, location), getattr(error.kind, "property", None)
            if isinstance(holder, dict) and wanted not in holder:
                holder[wanted] = None
                is_corrected = True
    return is_corrected


def _at(payload: Any, path: Path) -> Any:
    for step in path:
        payload = payload[step]
    return payload

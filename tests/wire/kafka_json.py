"""Messages in the JSON of Kafka's own converters (its request log speaks it): names in camel case, bytes in base 64.

A field that its version does not carry is left out, and so is a tagged field at its default.
"""

import base64
import json
from typing import Any

from kwire.wire import types
from kwire.wire.schema import ArrayKind, Kind, Struct, message_of


def to_kafka_json(message: Any, version: int) -> bytes:
    """What Kafka's converters can read."""
    text = json.dumps(_told(message_of(type(message)).struct, message, version, with_records=True))
    # Neither JSON nor Kafka's reader knows infinity, but a number that is too large for a double is one.
    return text.replace("Infinity", "1e999").encode()


def as_printed(message: Any, version: int) -> str:
    """What `printed` makes of Kafka's JSON of the same message."""
    return json.dumps(
        _told(message_of(type(message)).struct, message, version, with_records=False), sort_keys=True
    ).replace(" Infinity", ' "Infinity"')


def printed(kafka_json: bytes) -> str:
    """Kafka's JSON in one spelling, in which 1, 1.0 and true still differ."""
    return json.dumps(json.loads(kafka_json), sort_keys=True)


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _told(kind: Kind, value: Any, version: int, with_records: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_told(kind.element, element, version, with_records) for element in value]
    if isinstance(kind, Struct):
        going = [
            f for f in kind.tagged_at(version) if getattr(value, f.name) != ([] if f.default is list else f.default)
        ]
        return {
            camel_case(f.name): _told(f.kind, getattr(value, f.name), version, with_records)
            for f in (*kind.at(version), *going)
        }
    if kind is types.UUID:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if kind is types.RECORDS and not with_records:
        # Kafka says only that there are some.
        return ""
    if kind is types.BYTES or kind is types.RECORDS:
        return base64.b64encode(value).decode()
    return value

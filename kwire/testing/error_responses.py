"""Error responses to requests of any Kafka API, made from the request and the declaration of the response.

A response repeats the topics, partitions, groups or resources of its request. Each repeated element, and the response
itself, gets the error code where the declaration has a field for one.
"""

from collections.abc import Sequence
from typing import Any

from kwire.wire.schema import REQUIRED, ArrayKind, Field, Struct, struct_of
from kwire.wire.types import Fixed, Varlen

# The arrays of a request that an array of the response repeats, if their names differ.
REPEATED_ARRAYS: dict[str, tuple[str, ...]] = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "partition_responses": ("partition_data",),
    "partitions": ("partition_indexes",),
    "coordinators": ("coordinator_keys",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_partition": ("partitions",),
    "results": ("topics", "resources", "groups_names", "users", "creations"),
    "filter_results": ("filters",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "transaction_states": ("transactional_ids",),
    "groups": ("group_ids",),
}
# Fields of a response that repeat a field of the request with another name.
REPEATED_FIELDS = {"partition_index": "partition", "partition": "partition_index"}
# The field that an element gets from a request array of plain values.
KEY_FIELDS = ("partition_index", "partition", "partition_id", "group_id", "transactional_id", "key", "name")
# Fields for error codes. `topic_config_error_code` is about the settings in the response only.
ERROR_FIELDS = frozenset({"error_code", "partition_error_code"})


def can_fail(response: type[Any]) -> bool:
    """Return whether a response has a field for an error code, at its top or in an element."""
    return _can_fail(struct_of(response))


def error_response(response: type[Any], version: int, request: Any, code: int, *, at_top: bool = True) -> Any | None:
    """Return a response that reports the error, or None if no field of it could have the error code.

    `at_top=False` leaves the error code of the whole response 0, for APIs where it is about something else.
    """
    filler = _Filler(version, code)
    filled = filler.fill(struct_of(response), request, has_error=at_top)
    return filled if filler.places else None


class _Filler:
    """Fills structs of a response, and counts the fields that got the error code."""

    def __init__(self, version: int, code: int) -> None:
        self._version = version
        self._code = code
        self.places = 0

    def fill(self, struct: Struct, source: Any, *, has_error: bool = True) -> Any:
        made = struct.make(**{field.name: self._value(field, source) for field in struct.fields})
        for field in struct.fields:
            if field.name in ERROR_FIELDS and has_error and self._version in field.versions:
                setattr(made, field.name, self._code)
                self.places += 1
        return made

    def _value(self, field: Field, source: Any) -> Any:
        kind = field.kind
        if isinstance(kind, ArrayKind):
            if self._version not in field.versions or not isinstance(kind.element, Struct):
                return []
            if not _can_fail(kind.element):
                return []
            return [self._element(kind.element, one) for one in _repeated(field.name, source)]
        for name in (field.name, REPEATED_FIELDS.get(field.name, field.name)):
            value = getattr(source, name, None)
            if value is not None and field.name not in ERROR_FIELDS:
                return value
        return _blank(field, self._version)

    def _element(self, struct: Struct, source: Any) -> Any:
        made = self.fill(struct, source)
        if isinstance(source, str | int):
            names = {field.name for field in struct.fields}
            key = next((name for name in KEY_FIELDS if name in names), None)
            if key is not None:
                setattr(made, key, source)
        return made


def _repeated(name: str, source: Any) -> Sequence[Any]:
    """Return the elements of the request that an array of the response repeats."""
    for candidate in (name, *REPEATED_ARRAYS.get(name, ())):
        found = getattr(source, candidate, None)
        if found:
            return list(found)
    return ()


def _blank(field: Field, version: int) -> Any:
    if field.default is not REQUIRED and (field.default is not None or version in field.nullable):
        return field.default
    if version in field.nullable or version not in field.versions:
        return None
    assert isinstance(field.kind, Fixed | Varlen)
    return field.kind.zero


def _can_fail(struct: Struct) -> bool:
    for field in struct.fields:
        if field.name in ERROR_FIELDS:
            return True
        kind = field.kind
        if isinstance(kind, ArrayKind) and isinstance(kind.element, Struct) and _can_fail(kind.element):
            return True
    return False

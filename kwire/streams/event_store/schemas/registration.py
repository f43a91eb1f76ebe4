"""Validation of the schemas for a topic, in a worker process. The result includes the cost of checking a payload.

Exceptions that have their own constructor arguments cannot be pickled, so a refusal is returned as plain values.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kwire.errors import IncompatibleSchema, InvalidSchema
from kwire.streams.event_store.schemas.costs import Cost
from kwire.streams.event_store.schemas.evolution import check_addition
from kwire.streams.event_store.schemas.rules import costs_of, typed_schemas


class Refusal(NamedTuple):
    """Why schemas are refused. `event_type` is the type of the incompatible schema, or None if a schema is invalid."""

    event_type: str | None
    problem: str
    path: str

    def error(self) -> InvalidSchema | IncompatibleSchema:
        if self.event_type is None:
            return InvalidSchema(self.problem, self.path)
        return IncompatibleSchema(self.event_type, self.problem, self.path)


class ValidationResult(NamedTuple):
    """The costs of checking payloads, by event type. If the schemas are refused, `costs` is empty."""

    costs: Mapping[str, Cost]
    refusal: Refusal | None = None


def validate_schemas(raw: bytes, before: bytes | None = None) -> ValidationResult:
    """Validate an array of schemas in JSON. `before` has the present schemas of the topic; None for a new topic."""
    try:
        typed = typed_schemas(msgspec.json.decode(raw))
        if before is not None:
            check_addition(typed_schemas(msgspec.json.decode(before)), typed)
        return ValidationResult(costs_of(typed))
    except InvalidSchema as error:
        return ValidationResult({}, Refusal(None, error.problem, error.path))
    except IncompatibleSchema as error:
        return ValidationResult({}, Refusal(error.event_type, error.problem, error.path))

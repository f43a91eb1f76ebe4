"""What a worker is asked when schemas are given to a topic: whether they may be its schemas, and what checking takes.

Whoever asks is in another process, and exceptions with arguments of their own do not travel: refusals are plain values.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kwire.broker.store.schema_costs import Cost
from kwire.broker.store.schema_evolution import check_addition
from kwire.broker.store.schema_rules import costs_of, typed_schemas
from kwire.errors import IncompatibleSchema, InvalidSchema


class Refusal(NamedTuple):
    """`event_type` is that of a schema that cannot take the place of the one before; None for what is no schema."""

    event_type: str | None
    problem: str
    path: str

    def error(self) -> InvalidSchema | IncompatibleSchema:
        if self.event_type is None:
            return InvalidSchema(self.problem, self.path)
        return IncompatibleSchema(self.event_type, self.problem, self.path)


class Judged(NamedTuple):
    """What checking takes, by event type; or why they are refused."""

    costs: Mapping[str, Cost]
    refusal: Refusal | None = None


def judge(raw: bytes, before: bytes | None = None) -> Judged:
    """Judge an array of schemas, as JSON; `before` are those that the topic has."""
    try:
        typed = typed_schemas(msgspec.json.decode(raw))
        if before is not None:
            check_addition(typed_schemas(msgspec.json.decode(before)), typed)
        return Judged(costs_of(typed))
    except InvalidSchema as error:
        return Judged({}, Refusal(None, error.problem, error.path))
    except IncompatibleSchema as error:
        return Judged({}, Refusal(error.event_type, error.problem, error.path))

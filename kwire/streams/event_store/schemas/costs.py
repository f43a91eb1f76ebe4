"""An upper bound of the cost of checking a payload, computed from the schema.

The computation visits all kinds of instance locations that a payload can have. Two locations are of the same kind if
the same subschemas apply to them. Nested `anyOf`, or a schema that refers to itself twice at one location, would double
the work with each level. Therefore at most `SUBSCHEMAS_MAX` subschemas may apply to one location. Some keywords cost
more than others. The cost of matching a pattern is proportional to the pattern's size and to the payload's bytes.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from kwire.errors import InvalidSchema
from kwire.streams.event_store.schemas.document import (
    ANY_CHILD,
    ANY_CHILD_MAPS,
    IN_PLACE,
    IN_PLACE_LISTS,
    IN_PLACE_MAPS,
    ONE_CHILD_LISTS,
    ONE_CHILD_MAPS,
    REFERENCES,
    Document,
    Schema,
)

# The number of subschemas that may apply to one location of a payload, and the number of kinds of locations.
SUBSCHEMAS_MAX = 500
LOCATIONS_MAX = 20_000

# Applying a subschema to a location is one step, about 80 ns. These additional costs were measured.
UNIQUE_STEPS = 30  # `uniqueItems`: small arrays are compared item by item
FRACTION_STEPS = 500  # `multipleOf`: exact fractions are computed, even for numbers with large exponents
LARGE_VALUE_STEPS = 6  # `enum`: the cost of each array or object that a value is compared with
NAMES_PER_STEP = 4  # `dependentRequired`: names that are looked up in one step
# At worst, a linear-time engine processes each byte of a value once for every state of the pattern.
PATTERN_BYTES_PER_STEP = 64

_ANY_CHILD = "*"


class Cost(NamedTuple):
    """The cost of checking one location of a payload.

    `subschemas` is the number of subschemas that apply to it. `steps` is their work, and `byte_steps` their additional
    work for each byte.
    """

    subschemas: int
    steps: int
    byte_steps: int

    def work(self, payload: bytes) -> int:
        """Return an upper bound of the work for a payload. A unit of work is about 20 ns."""
        # Every value in the payload, except the outermost one, follows one of these characters.
        locations = 1 + payload.count(b",") + payload.count(b"[") + payload.count(b"{")
        return len(payload) // 8 + 4 * locations * self.steps + len(payload) * self.byte_steps

    def maximum(self, other: Self) -> "Cost":
        return Cost(*map(max, self, other))


NO_COST = Cost(0, 1, 0)


def cost_of(document: Document, pattern_bytes: Mapping[str, int]) -> Cost:
    """Return the cost of a schema; raises InvalidSchema if it is too high.

    `pattern_bytes` has the compiled size of each pattern.
    """
    return _Locations(document, pattern_bytes).cost()


def _own_cost(schema: Schema, pattern_bytes: Mapping[str, int]) -> Cost:
    """Return the cost of a schema's own keywords. The cost of schemas inside it is not included."""
    steps = 1
    if schema.get("uniqueItems"):
        steps += UNIQUE_STEPS
    if isinstance(schema.get("multipleOf"), float):
        steps += FRACTION_STEPS
    compared = schema.get("enum", ())
    steps += LARGE_VALUE_STEPS * sum(isinstance(one, dict | list) for one in compared)
    dependent = schema.get("dependentRequired", {})
    steps += (len(dependent) + sum(map(len, dependent.values()))) // NAMES_PER_STEP
    patterns = [schema["pattern"]] if "pattern" in schema else []
    patterns += schema.get("patternProperties", ())
    return Cost(1, steps, sum(1 + pattern_bytes[one] // PATTERN_BYTES_PER_STEP for one in patterns))


class _Applied(NamedTuple):
    """The cost of a schema at its location, and the schemas that it applies to locations inside that location."""

    cost: Cost
    inside: Mapping[str, Counter[int]]


class _Locations:
    """The kinds of locations of a payload. Each is a counter of the subschemas that apply to it."""

    def __init__(self, document: Document, pattern_bytes: Mapping[str, int]) -> None:
        self._document = document
        self._pattern_bytes = pattern_bytes
        self._applied: dict[int, _Applied] = {}
        self._schemas: dict[int, Any] = {}

    def cost(self) -> Cost:
        first: Counter[int] = Counter([self._number(self._document.root)])
        waiting, seen, most = deque([first]), {frozenset(first.items())}, Cost(1, 1, 0)
        while waiting:
            location = waiting.popleft()
            applied = [(self._at(number), times) for number, times in location.items()]
            most = most.maximum(_sum([(one.cost, times) for one, times in applied]))
            if most.subschemas > SUBSCHEMAS_MAX:
                raise self._too_costly()
            for inner in _inner_locations(applied):
                known = frozenset(inner.items())
                if known not in seen:
                    seen.add(known)
                    waiting.append(inner)
            if len(seen) > LOCATIONS_MAX:
                raise self._too_costly()
        return most

    def _number(self, schema: Any) -> int:
        # Use the id of the object, because equal schemas may occur several times. The document keeps all schemas alive,
        # so their ids stay unique.
        self._schemas[id(schema)] = schema
        return id(schema)

    def _at(self, number: int) -> _Applied:
        found = self._applied.get(number)
        if found is None:
            inside: dict[str, Counter[int]] = {}
            costs: list[tuple[Cost, int]] = []
            self._collect(self._schemas[number], inside, costs, set())
            found = self._applied[number] = _Applied(_sum(costs), inside)
        return found

    def _collect(
        self, schema: Any, inside: dict[str, Counter[int]], costs: list[tuple[Cost, int]], around: set[int]
    ) -> None:
        """Add to `costs` the costs of `schema` and of all schemas that it applies to the same location.

        The schemas for inner locations are added to `inside`. `around` has the ids of the enclosing schemas.
        """
        if len(costs) >= SUBSCHEMAS_MAX:
            raise self._too_costly()
        # A schema that refers to itself at the same location is not expanded again.
        if not isinstance(schema, dict) or id(schema) in around:
            costs.append((Cost(1, 1, 0), 1))
            return
        costs.append((_own_cost(schema, self._pattern_bytes), 1))
        around.add(id(schema))
        for one in self._in_place_schemas(schema):
            self._collect(one, inside, costs, around)
        around.discard(id(schema))
        for key, one in _children(schema):
            inside.setdefault(key, Counter())[self._number(one)] += 1

    def _in_place_schemas(self, schema: Schema) -> Iterator[Any]:
        for name in IN_PLACE:
            if name in schema:
                yield schema[name]
        for name in IN_PLACE_LISTS:
            yield from schema.get(name, ())
        for name in IN_PLACE_MAPS:
            yield from schema.get(name, {}).values()
        for name in REFERENCES:
            if name in schema:
                yield self._document.target(schema[name])

    def _too_costly(self) -> InvalidSchema:
        return InvalidSchema(
            f"more than {SUBSCHEMAS_MAX} subschemas can apply to one location of a payload, which would take too long",
            self._document.path,
        )


def _sum(costs: list[tuple[Cost, int]]) -> Cost:
    """Add costs, each multiplied by its number of occurrences."""
    return Cost(*(sum(cost[which] * times for cost, times in costs) for which in range(len(Cost._fields))))


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name in ANY_CHILD:
        if name in schema:
            yield _ANY_CHILD, schema[name]
    for name in ANY_CHILD_MAPS:
        for one in schema.get(name, {}).values():
            yield _ANY_CHILD, one
    for name in ONE_CHILD_LISTS:
        for number, one in enumerate(schema.get(name, ())):
            yield f"[{number}]", one
    for name in ONE_CHILD_MAPS:
        for key, one in schema.get(name, {}).items():
            yield f".{key}", one


def _inner_locations(applied: list[tuple[_Applied, int]]) -> Iterator[Counter[int]]:
    """Yield, for each inner location, the schemas that apply to it.

    Schemas for any inner location also apply to the inner locations that have a name or an index.
    """
    inner: dict[str, Counter[int]] = {}
    for one, times in applied:
        for key, schemas in one.inside.items():
            found = inner.setdefault(key, Counter())
            for number, count in schemas.items():
                found[number] += count * times
    any_child = inner.pop(_ANY_CHILD, None)
    if any_child is not None:
        yield any_child
    for named in inner.values():
        yield named + any_child if any_child is not None else named

"""What checking a payload takes at most, found by walking the places that a payload can have.

A place is known by the subschemas that apply to it: `anyOf` over `anyOf`, or a schema that refers to itself twice at
one place, would double the work with each level, so no more than `LOOKS_MAX` may. Beside that some words take longer
than others, and a pattern takes as long for each byte as it is large.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from kwire.broker.store.schema_document import (
    ANY,
    ANY_MAPS,
    ONE_LISTS,
    ONE_MAPS,
    REFERENCES,
    SAME,
    SAME_LISTS,
    SAME_MAPS,
    Document,
    Schema,
)
from kwire.errors import InvalidSchema

# Subschemas that apply to one place of a payload, and sets of them that are looked at.
LOOKS_MAX = 500
PLACES_MAX = 20_000

# Steps: a subschema that looks at a place takes one, about 80 ns. What these take beside it was measured.
UNIQUE_STEPS = 30  # small arrays are compared item by item
FRACTION_STEPS = 500  # exact fractions of numbers with large exponents
LARGE_VALUE_STEPS = 6  # each array or object that a value is compared with
NAMES_PER_STEP = 4
# An engine of linear time looks at each byte with all states that a pattern has, at the worst.
PATTERN_BYTES_PER_STEP = 64

_ANY_PLACE = "*"


class Cost(NamedTuple):
    """`looks`: subschemas that apply to one place; `steps`: what they do there; `byte_steps`: and for each byte."""

    looks: int
    steps: int
    byte_steps: int

    def work(self, payload: bytes) -> int:
        """How much there is to do for a payload at the worst; a unit is about 20 ns."""
        # Every value is the first one, or stands behind one of these.
        places = 1 + payload.count(b",") + payload.count(b"[") + payload.count(b"{")
        return len(payload) // 8 + 4 * places * self.steps + len(payload) * self.byte_steps

    def with_most_of(self, other: Self) -> "Cost":
        return Cost(*map(max, self, other))


NO_COST = Cost(0, 1, 0)


def cost_of(document: Document, pattern_bytes: Mapping[str, int]) -> Cost:
    """`pattern_bytes`: how large each pattern is; raises InvalidSchema if there is no sensible bound."""
    return _Places(document, pattern_bytes).cost()


def _own_cost(schema: Schema, pattern_bytes: Mapping[str, int]) -> Cost:
    """Of its own words, without the schemas inside it."""
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
    """What a schema does at the place it applies to, and the schemas that look at places inside it."""

    cost: Cost
    inside: Mapping[str, Counter[int]]


class _Places:
    """The places of a payload, as far as the schema tells them apart: by the subschemas that apply to them."""

    def __init__(self, document: Document, pattern_bytes: Mapping[str, int]) -> None:
        self._document = document
        self._pattern_bytes = pattern_bytes
        self._applied: dict[int, _Applied] = {}
        self._schemas: dict[int, Any] = {}

    def cost(self) -> Cost:
        first: Counter[int] = Counter([self._number(self._document.root)])
        waiting, seen, most = deque([first]), {frozenset(first.items())}, Cost(1, 1, 0)
        while waiting:
            place = waiting.popleft()
            applied = [(self._at(number), times) for number, times in place.items()]
            most = most.with_most_of(_sum([(one.cost, times) for one, times in applied]))
            if most.looks > LOOKS_MAX:
                raise self._too_much()
            for inner in _inner_places(applied):
                known = frozenset(inner.items())
                if known not in seen:
                    seen.add(known)
                    waiting.append(inner)
            if len(seen) > PLACES_MAX:
                raise self._too_much()
        return most

    def _number(self, schema: Any) -> int:
        # Two that are equal may stand at several places; the document keeps each of them alive.
        self._schemas[id(schema)] = schema
        return id(schema)

    def _at(self, number: int) -> _Applied:
        found = self._applied.get(number)
        if found is None:
            inside: dict[str, Counter[int]] = {}
            costs: list[tuple[Cost, int]] = []
            self._unfold(self._schemas[number], inside, costs, set())
            found = self._applied[number] = _Applied(_sum(costs), inside)
        return found

    def _unfold(
        self, schema: Any, inside: dict[str, Counter[int]], costs: list[tuple[Cost, int]], around: set[int]
    ) -> None:
        """Note what all that applies to the same place takes; what applies to places inside is noted in `inside`."""
        if len(costs) >= LOOKS_MAX:
            raise self._too_much()
        # One that comes back to itself at the same place adds nothing.
        if not isinstance(schema, dict) or id(schema) in around:
            costs.append((Cost(1, 1, 0), 1))
            return
        costs.append((_own_cost(schema, self._pattern_bytes), 1))
        around.add(id(schema))
        for one in self._same(schema):
            self._unfold(one, inside, costs, around)
        around.discard(id(schema))
        for key, one in _children(schema):
            inside.setdefault(key, Counter())[self._number(one)] += 1

    def _same(self, schema: Schema) -> Iterator[Any]:
        for name in SAME:
            if name in schema:
                yield schema[name]
        for name in SAME_LISTS:
            yield from schema.get(name, ())
        for name in SAME_MAPS:
            yield from schema.get(name, {}).values()
        for name in REFERENCES:
            if name in schema:
                yield self._document.target(schema[name])

    def _too_much(self) -> InvalidSchema:
        return InvalidSchema(
            f"more than {LOOKS_MAX} subschemas may apply to one place of a payload: checking would take too long",
            self._document.path,
        )


def _sum(costs: list[tuple[Cost, int]]) -> Cost:
    """Of costs that come up so many times each."""
    return Cost(*(sum(cost[which] * times for cost, times in costs) for which in range(len(Cost._fields))))


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name in ANY:
        if name in schema:
            yield _ANY_PLACE, schema[name]
    for name in ANY_MAPS:
        for one in schema.get(name, {}).values():
            yield _ANY_PLACE, one
    for name in ONE_LISTS:
        for number, one in enumerate(schema.get(name, ())):
            yield f"[{number}]", one
    for name in ONE_MAPS:
        for key, one in schema.get(name, {}).items():
            yield f".{key}", one


def _inner_places(applied: list[tuple[_Applied, int]]) -> Iterator[Counter[int]]:
    """What applies to each of the places inside. What applies to any applies to the named ones too."""
    inner: dict[str, Counter[int]] = {}
    for one, times in applied:
        for key, schemas in one.inside.items():
            found = inner.setdefault(key, Counter())
            for number, count in schemas.items():
                found[number] += count * times
    any_place = inner.pop(_ANY_PLACE, None)
    if any_place is not None:
        yield any_place
    for named in inner.values():
        yield named + any_place if any_place is not None else named

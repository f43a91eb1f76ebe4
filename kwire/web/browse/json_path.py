"""JSON paths: a small subset of RFC 9535 without expressions, for filters.

`$` is the whole value. Each step selects members of the values that the steps before it have selected:

- `.name` or `['name']`: the member of an object
- `[2]`, `[-1]`: the element of an array, from its start or its end
- `[*]` or `.*`: all members of an object or all elements of an array

A name after a dot has letters, digits, `_` and `-`. The names in brackets have single or double quotes, and no escapes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

PATH_LENGTH_MAX = 256
STEPS_MAX = 32

_STEP = re.compile(
    r"""\.(?P<name>[\w-]+) | (?P<all>\.\*|\[\*\]) | \[(?P<index>-?[0-9]{1,9})\] | \['(?P<single>[^'\\]*)'\]
    | \["(?P<double>[^"\\]*)"\]""",
    re.VERBOSE,
)


class InvalidPath(ValueError):
    """The text is not a path of the subset. The message says why."""


class AllMembers(NamedTuple):
    """The step `[*]`."""


ALL: Final = AllMembers()
# The name of a member, the index of an element, or all of them.
Step = str | int | AllMembers


class JsonPath(NamedTuple):
    """A parsed path."""

    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of members that every value with a selected part has."""
        return tuple(step for step in self.steps if isinstance(step, str))

    def select(self, value: Any) -> list[Any]:
        """Return the parts of a decoded JSON value that the path selects."""
        selected = [value]
        for step in self.steps:
            selected = list(_members(selected, step))
            if not selected:
                break
        return selected


def parse_path(text: str) -> JsonPath:
    """Parse a path. Raises InvalidPath."""
    if len(text) > PATH_LENGTH_MAX:
        raise InvalidPath(f"the path has {len(text)} characters, at most {PATH_LENGTH_MAX} are allowed")
    if not text.startswith("$"):
        raise InvalidPath('the path must begin with "$", for example $.order.items[0].name')
    steps: list[Step] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise InvalidPath(
                f"character {position + 1} of the path is not the begin of a step: use .name, ['name'], [0], [-1] or "
                "[*]; expressions are not supported"
            )
        steps.append(_step(found))
        position = found.end()
    if len(steps) > STEPS_MAX:
        raise InvalidPath(f"the path has {len(steps)} steps, at most {STEPS_MAX} are allowed")
    return JsonPath(tuple(steps))


def _step(found: re.Match[str]) -> Step:
    if found["all"] is not None:
        return ALL
    if found["index"] is not None:
        return int(found["index"])
    return next(found[one] for one in ("name", "single", "double") if found[one] is not None)


def _members(values: Iterable[Any], step: Step) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            if isinstance(step, str):
                if step in value:
                    yield value[step]
            elif isinstance(step, AllMembers):
                yield from value.values()
        elif isinstance(value, list):
            if isinstance(step, int):
                if -len(value) <= step < len(value):
                    yield value[step]
            elif isinstance(step, AllMembers):
                yield from value

"""The small language in which a webhook says which events it wants: `type == "order.paid" and data.amount >= 100`.

    expression  one test, or several joined by `and`, `or`, `not` and parentheses
    test        a value alone (true unless it is null or false), or two of them with one of
                == != < <= > >= in contains startswith endswith
    value       "text", a number, true, false, null, [a, list, of, such], or a path into the event
    path        type, id, topic, time, key, data or metadata, and then .name, ["any name"] or [number]

Nothing in it can loop, call or fail: what is not there is null, and things of different kinds are unequal and in no
order. A text has a length, a depth and a number of parts that it may not exceed, so a look at an event takes
microseconds. An event whose data cannot be looked at (it nests too deep) is wanted: better one too many than one lost.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from kwire.broker.events.event import Event, time_text
from kwire.broker.store.event_ids import EventId
from kwire.errors import InvalidWebhook

LENGTH_MAX = 2000
DEPTH_MAX = 32
PARTS_MAX = 200
LIST_MAX = 100
PATH_STEPS_MAX = 20
NUMBER_LENGTH_MAX = 40

Value = Any
_Look = Callable[["Subject"], Value]
_decode = msgspec.json.Decoder().decode

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,|\.)
      | (?P<end>$)
    )""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "contains", "startswith", "endswith"})
_CONSTANTS: Mapping[str, Value] = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Subject:
    """An event as paths see it; its data are decoded when first asked for."""

    __slots__ = ("_data", "_has_data", "event", "topic")

    def __init__(self, topic: str, event: Event) -> None:
        self.topic = topic
        self.event = event
        self._data: Value = None
        self._has_data = False

    @property
    def data(self) -> Value:
        if not self._has_data:
            self._data = _decode(self.event.data)
            self._has_data = True
        return self._data


_ROOTS: Mapping[str, _Look] = {
    "type": lambda one: one.event.type,
    "id": lambda one: str(EventId(one.topic, one.event.offset)),
    "topic": lambda one: one.topic,
    "time": lambda one: time_text(one.event.timestamp_ms),
    "key": lambda one: None if one.event.key is None else one.event.key.decode(errors="backslashreplace"),
    "data": lambda one: one.data,
    # The name that the text uses for the same.
    "payload": lambda one: one.data,
    "metadata": lambda one: one.event.metadata,
}


class Expression:
    """A text that was understood. Two of the same text are equal."""

    __slots__ = ("_look", "text")

    def __init__(self, text: str) -> None:
        """Raises InvalidWebhook, which says where the text makes no sense."""
        self.text = text
        self._look = _Parser(text).parse()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, topic: str, event: Event) -> bool:
        try:
            return _is_true(self._look(Subject(topic, event)))
        except (RecursionError, ValueError, msgspec.DecodeError):
            return True


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent; every level and every part is counted."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise InvalidWebhook(f"the filter has {len(text)} characters, {LENGTH_MAX} are allowed")
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._parts = 0

    def parse(self) -> _Look:
        look = self._either()
        if self._next.kind != "end":
            raise self._problem("the end, or and, or or")
        return look

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise InvalidWebhook(f"the filter has too many parts: {PARTS_MAX} words, values and signs are allowed")
        return token

    def _takes(self, text: str) -> bool:
        token = self._next
        if token.kind in ("word", "sign") and token.text == text:
            self._take()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._problem(repr(text))

    def _problem(self, expected: str) -> InvalidWebhook:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text[:50])
        return InvalidWebhook(
            f"the filter makes no sense at character {token.at + 1}: {expected} is expected, not {found}"
        )

    # --- from the loosest to the tightest

    def _either(self) -> _Look:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidWebhook(f"the filter nests deeper than {DEPTH_MAX} levels")
        looks = [self._all()]
        while self._takes("or"):
            looks.append(self._all())
        self._depth -= 1
        return looks[0] if len(looks) == 1 else lambda one: any(_is_true(look(one)) for look in looks)

    def _all(self) -> _Look:
        looks = [self._negated()]
        while self._takes("and"):
            looks.append(self._negated())
        return looks[0] if len(looks) == 1 else lambda one: all(_is_true(look(one)) for look in looks)

    def _negated(self) -> _Look:
        is_negated = False
        while self._takes("not"):
            is_negated = not is_negated
        look = self._test()
        return (lambda one: not _is_true(look(one))) if is_negated else look

    def _test(self) -> _Look:
        if self._takes("("):
            look = self._either()
            self._expect(")")
            return look
        left = self._value()
        token = self._next
        if token.text not in _COMPARISONS or token.kind not in ("word", "sign"):
            return left
        self._take()
        compare = _COMPARE[token.text]
        right = self._value()
        return lambda one: compare(left(one), right(one))

    def _value(self) -> _Look:
        token = self._next
        if token.kind == "text":
            self._take()
            return _constant(_unquoted(token.text))
        if token.kind == "number":
            self._take()
            return _constant(_number(token.text))
        if self._takes("["):
            return _constant(self._list())
        if token.kind == "word" and token.text in _CONSTANTS:
            self._take()
            return _constant(_CONSTANTS[token.text])
        if token.kind == "word" and token.text in _ROOTS:
            self._take()
            return self._path(_ROOTS[token.text])
        raise self._problem(f"a value ({', '.join(_ROOTS)}, a text, a number, a list)")

    def _list(self) -> list[Value]:
        values: list[Value] = []
        while not self._takes("]"):
            if values:
                self._expect(",")
            token = self._take()
            if token.kind == "text":
                values.append(_unquoted(token.text))
            elif token.kind == "number":
                values.append(_number(token.text))
            elif token.kind == "word" and token.text in _CONSTANTS:
                values.append(_CONSTANTS[token.text])
            else:
                self._at -= 1
                raise self._problem("a text or a number in the list")
            if len(values) > LIST_MAX:
                raise InvalidWebhook(f"a list of the filter has more than {LIST_MAX} values")
        return values

    def _path(self, root: _Look) -> _Look:
        steps: list[str | int] = []
        while True:
            if self._takes("."):
                token = self._take()
                if token.kind != "word":
                    self._at -= 1
                    raise self._problem("a name")
                steps.append(token.text)
            elif self._takes("["):
                token = self._take()
                if token.kind == "text":
                    steps.append(_unquoted(token.text))
                elif token.kind == "number" and token.text.isdigit() and len(token.text) < NUMBER_LENGTH_MAX:
                    steps.append(int(token.text))
                else:
                    self._at -= 1
                    raise self._problem("a name in quotes or a number")
                self._expect("]")
            else:
                break
            if len(steps) > PATH_STEPS_MAX:
                raise InvalidWebhook(f"a path of the filter has more than {PATH_STEPS_MAX} steps")
        return (lambda one: _walked(root(one), steps)) if steps else root


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            blank = len(text) - len(text[position:].lstrip())
            raise InvalidWebhook(f"the filter makes no sense at character {blank + 1}")
        kind = found.lastgroup or "end"
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        if kind == "end":
            return tokens
        position = found.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    if len(text) > NUMBER_LENGTH_MAX:
        raise InvalidWebhook(f"a number of the filter has {len(text)} characters, {NUMBER_LENGTH_MAX} are allowed")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _constant(value: Value) -> _Look:
    return lambda one: value


def _walked(value: Value, steps: list[str | int]) -> Value:
    for step in steps:
        if isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list):
            value = value[step] if step < len(value) else None
        else:
            return None
    return value


# --- comparing


def _is_true(value: Value) -> bool:
    return value is not None and value is not False


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _is_equal(one: Value, other: Value) -> bool:
    # Of Python's own equality only that between true and 1 is not wanted; deeper inside nobody minds.
    return _kind(one) == _kind(other) and bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def compared(one: Value, other: Value) -> bool:
        kind = _kind(one)
        return kind == _kind(other) and kind in ("number", "text") and compare(one, other)

    return compared


def _has(one: Value, other: Value) -> bool:
    """Whether a list has the value, a text the part, or an object the name."""
    if isinstance(one, list):
        return any(_is_equal(each, other) for each in one)
    if isinstance(one, str | Mapping):
        return isinstance(other, str) and other in one
    return False


def _texts(compare: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    return lambda one, other: isinstance(one, str) and isinstance(other, str) and compare(one, other)


_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "==": _is_equal,
    "!=": lambda one, other: not _is_equal(one, other),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
    "in": lambda one, other: _has(other, one),
    "contains": _has,
    "startswith": _texts(str.startswith),
    "endswith": _texts(str.endswith),
}

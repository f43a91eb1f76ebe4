"""The filter language of webhooks: `type == "order.paid" and data.amount >= 100`.

    expression  one test, or several tests combined with `and`, `or`, `not` and parentheses
    test        one value (true unless it is null or false), or two values with one of these operators between them:
                == != < <= > >= in contains startswith endswith
    value       "text", a number, true, false, null, a list of these in brackets, or a path into the event
    path        type, id, topic, time, key, data or metadata, and then .name, ["any name"] or [number]

The language has no loops and no function calls. Evaluation cannot fail: a missing value is null, and values of
different kinds are neither equal nor ordered. Length, depth and number of tokens are bounded, so evaluation takes
microseconds. If the data of an event cannot be decoded, because it is nested too deep, the event matches. One unwanted
delivery is better than a lost event.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from kwire.errors import InvalidWebhook
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import Event, time_text

LENGTH_MAX = 2000
DEPTH_MAX = 32
PARTS_MAX = 200
LIST_MAX = 100
PATH_STEPS_MAX = 20
NUMBER_LENGTH_MAX = 40

Value = Any
_Evaluate = Callable[["Subject"], Value]
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
    """The event that an expression is evaluated on. The data is decoded when it is used first."""

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


_ROOTS: Mapping[str, _Evaluate] = {
    "type": lambda one: one.event.type,
    "id": lambda one: str(EventId(one.topic, one.event.offset)),
    "topic": lambda one: one.topic,
    "time": lambda one: time_text(one.event.timestamp_ms),
    "key": lambda one: None if one.event.key is None else one.event.key.decode(errors="backslashreplace"),
    "data": lambda one: one.data,
    # An alias of `data`: the body of a delivery names this field `payload`.
    "payload": lambda one: one.data,
    "metadata": lambda one: one.event.metadata,
}


class Expression:
    """A parsed filter expression. Expressions with the same text are equal."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str) -> None:
        """Parse an expression; raises InvalidWebhook with the position of the error."""
        self.text = text
        self._evaluate = _Parser(text).parse()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, topic: str, event: Event) -> bool:
        try:
            return _is_true(self._evaluate(Subject(topic, event)))
        except (RecursionError, ValueError, msgspec.DecodeError):
            return True


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """A recursive-descent parser that limits the nesting depth and the number of tokens."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise InvalidWebhook(f"the filter has {len(text)} characters, at most {LENGTH_MAX} are allowed")
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._parts = 0

    def parse(self) -> _Evaluate:
        operand = self._parse_or()
        if self._next.kind != "end":
            raise self._syntax_error("the end, or and, or or")
        return operand

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise InvalidWebhook(f"the filter has too many parts: at most {PARTS_MAX} words, values and operators")
        return token

    def _accept(self, text: str) -> bool:
        token = self._next
        if token.kind in ("word", "sign") and token.text == text:
            self._take()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._syntax_error(repr(text))

    def _syntax_error(self, expected: str) -> InvalidWebhook:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text[:50])
        return InvalidWebhook(
            f"the filter has a syntax error at character {token.at + 1}: expected {expected}, found {found}"
        )

    # --- from the lowest to the highest precedence

    def _parse_or(self) -> _Evaluate:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidWebhook(f"the filter is nested deeper than {DEPTH_MAX} levels")
        operands = [self._parse_and()]
        while self._accept("or"):
            operands.append(self._parse_and())
        self._depth -= 1
        return operands[0] if len(operands) == 1 else lambda one: any(_is_true(operand(one)) for operand in operands)

    def _parse_and(self) -> _Evaluate:
        operands = [self._parse_not()]
        while self._accept("and"):
            operands.append(self._parse_not())
        return operands[0] if len(operands) == 1 else lambda one: all(_is_true(operand(one)) for operand in operands)

    def _parse_not(self) -> _Evaluate:
        is_negated = False
        while self._accept("not"):
            is_negated = not is_negated
        operand = self._parse_test()
        return (lambda one: not _is_true(operand(one))) if is_negated else operand

    def _parse_test(self) -> _Evaluate:
        if self._accept("("):
            operand = self._parse_or()
            self._expect(")")
            return operand
        left = self._parse_value()
        token = self._next
        if token.text not in _COMPARISONS or token.kind not in ("word", "sign"):
            return left
        self._take()
        compare = _COMPARE[token.text]
        right = self._parse_value()
        return lambda one: compare(left(one), right(one))

    def _parse_value(self) -> _Evaluate:
        token = self._next
        if token.kind == "text":
            self._take()
            return _constant(_unquoted(token.text))
        if token.kind == "number":
            self._take()
            return _constant(_number(token.text))
        if self._accept("["):
            return _constant(self._parse_list())
        if token.kind == "word" and token.text in _CONSTANTS:
            self._take()
            return _constant(_CONSTANTS[token.text])
        if token.kind == "word" and token.text in _ROOTS:
            self._take()
            return self._parse_path(_ROOTS[token.text])
        raise self._syntax_error(f"a value ({', '.join(_ROOTS)}, a string, a number, a list)")

    def _parse_list(self) -> list[Value]:
        values: list[Value] = []
        while not self._accept("]"):
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
                raise self._syntax_error("a string or a number in the list")
            if len(values) > LIST_MAX:
                raise InvalidWebhook(f"a list in the filter has more than {LIST_MAX} values")
        return values

    def _parse_path(self, root: _Evaluate) -> _Evaluate:
        steps: list[str | int] = []
        while True:
            if self._accept("."):
                token = self._take()
                if token.kind != "word":
                    self._at -= 1
                    raise self._syntax_error("a name")
                steps.append(token.text)
            elif self._accept("["):
                token = self._take()
                if token.kind == "text":
                    steps.append(_unquoted(token.text))
                elif token.kind == "number" and token.text.isdigit() and len(token.text) < NUMBER_LENGTH_MAX:
                    steps.append(int(token.text))
                else:
                    self._at -= 1
                    raise self._syntax_error("a name in quotes or a number")
                self._expect("]")
            else:
                break
            if len(steps) > PATH_STEPS_MAX:
                raise InvalidWebhook(f"a path in the filter has more than {PATH_STEPS_MAX} steps")
        return (lambda one: _resolve(root(one), steps)) if steps else root


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            blank = len(text) - len(text[position:].lstrip())
            raise InvalidWebhook(f"the filter has a syntax error at character {blank + 1}")
        kind = found.lastgroup or "end"
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        if kind == "end":
            return tokens
        position = found.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    if len(text) > NUMBER_LENGTH_MAX:
        raise InvalidWebhook(f"a number in the filter has {len(text)} characters, at most {NUMBER_LENGTH_MAX} allowed")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _constant(value: Value) -> _Evaluate:
    return lambda one: value


def _resolve(value: Value, steps: list[str | int]) -> Value:
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
    # Python's equality, except that true and 1 are different. Inside lists and objects, true and 1 are equal.
    return _kind(one) == _kind(other) and bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def compared(one: Value, other: Value) -> bool:
        kind = _kind(one)
        return kind == _kind(other) and kind in ("number", "text") and compare(one, other)

    return compared


def _has(one: Value, other: Value) -> bool:
    """Whether `one` contains `other`: as a value of a list, a substring of a string, or a name of an object."""
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

"""Parser for the regular expressions of topic subscriptions, in the syntax of RE2/J. Matching takes linear time.

Python's `re` backtracks, so one expression could block the server. This parser builds a finite automaton (NFA) that
reads each character of a name once. Back references and look-around are not supported, as in RE2/J. Topic names are
ASCII, so a set of characters is a 128-bit mask. A character that is not ASCII matches nothing.

    expression   alternatives separated by |, each a sequence of pieces
    piece        an atom, optionally repeated: * + ? {n} {n,} {n,m}; a further ? (non-greedy) has no effect
    atom         a character, ., [set], \\escape, (group), ^, $
"""

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError

# RE2's limit for the counts in {n,m}.
REPEAT_MAX = 1_000
# kwire's limits for the length of an expression, the number of NFA states and the depth of nested groups.
PATTERN_LENGTH_MAX = 4_096
PROGRAM_STATES_MAX = 2_000
NESTING_MAX = 64

_ALL = (1 << 128) - 1


def _mask(characters: str) -> int:
    return sum(1 << ord(one) for one in set(characters))


_DIGITS = _mask("0123456789")
_LOWER = _mask("abcdefghijklmnopqrstuvwxyz")
_UPPER = _mask("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORD = _DIGITS | _LOWER | _UPPER | _mask("_")
_SPACE = _mask("\t\n\f\r ")
_NEWLINE = _mask("\n")

_CLASS_ESCAPES = {"d": _DIGITS, "s": _SPACE, "w": WORD}
_CHARACTER_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_POSIX = {
    "alnum": _DIGITS | _LOWER | _UPPER,
    "alpha": _LOWER | _UPPER,
    "ascii": _ALL,
    "blank": _mask("\t "),
    "cntrl": _mask("".join(map(chr, range(32))) + "\x7f"),
    "digit": _DIGITS,
    "graph": _mask("".join(map(chr, range(33, 127)))),
    "lower": _LOWER,
    "print": _mask("".join(map(chr, range(32, 127)))),
    "punct": _mask("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "space": _SPACE | _mask("\v"),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": _mask("0123456789abcdefABCDEF"),
}
# The supported Unicode scripts: those with ASCII characters, and some frequent ones without.
_SCRIPTS = {"Latin": _LOWER | _UPPER, "Common": _ALL & ~(_LOWER | _UPPER), "Greek": 0, "Cyrillic": 0, "Han": 0}
_CATEGORIES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"


class At(NamedTuple):
    """The position in a name at which an assertion is evaluated."""

    is_start: bool
    is_end: bool
    is_word_before: bool
    is_word_after: bool


_ASSERTIONS: dict[str, Callable[[At], bool]] = {
    "^": lambda at: at.is_start,
    "$": lambda at: at.is_end,
    "A": lambda at: at.is_start,
    "z": lambda at: at.is_end,
    "b": lambda at: at.is_word_before != at.is_word_after,
    "B": lambda at: at.is_word_before == at.is_word_after,
}


class InvalidPattern(ValueError):
    """The expression is not valid. The message is sent to the client."""


class State:
    """A state of the automaton (NFA).

    A state with a `mask` consumes one character of the mask, and `follows` are the next states. A state without a mask
    consumes no character, and `follows` are the next states if its assertion is true or None.
    """

    __slots__ = ("assertion", "follows", "mask")

    def __init__(self, mask: int | None = None, assertion: Callable[[At], bool] | None = None) -> None:
        self.mask = mask
        self.assertion = assertion
        self.follows: list[State] = []


class Program(NamedTuple):
    start: State
    end: State


def parse(pattern: str) -> Program:
    """Build the automaton of an expression. Raises InvalidPattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"longer than {PATTERN_LENGTH_MAX} characters")
    return _Parser(_unquoted(pattern)).program()


def check_pattern(pattern: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION if the expression is not valid."""
    try:
        parse(pattern)
    except InvalidPattern as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _unquoted(pattern: str) -> str:
    """Return the expression without \\Q and \\E: each character between them is escaped instead."""
    parts, position = [], 0
    while (stroke := pattern.find("\\", position)) >= 0:
        if not pattern.startswith("\\Q", stroke):
            parts.append(pattern[position : stroke + 2])
            position = stroke + 2
            continue
        quoted, _, _ = pattern[stroke + 2 :].partition("\\E")
        parts.append(pattern[position:stroke])
        parts += [one if one.isalnum() or not one.isascii() else "\\" + one for one in quoted]
        position = stroke + 2 + len(quoted) + 2
    return "".join(parts) + pattern[position:]


# A parsed expression: a function that builds its states. It is a function because a repetition builds the states of its
# piece several times.
_Node = Callable[["_Parser"], Program]


class _Parser:
    """A recursive-descent parser. `_flags` are the flags at the current position. Only i and s have an effect."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags = frozenset[str]()
        self._state_count = 0

    def program(self) -> Program:
        node = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return node(self)

    # Building

    def state(self, mask: int | None = None, assertion: Callable[[At], bool] | None = None) -> State:
        self._state_count += 1
        if self._state_count > PROGRAM_STATES_MAX:
            raise InvalidPattern("expression too large")
        return State(mask, assertion)

    def _empty(self) -> Program:
        start, end = self.state(), self.state()
        start.follows.append(end)
        return Program(start, end)

    # Reading

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _next(self, what: str) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern(what)
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> _Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise InvalidPattern("expression nests too deeply")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else lambda parser: _either(parser, branches)

    def _sequence(self) -> _Node:
        pieces: list[_Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            piece = self._piece()
            if piece is not None:
                pieces.append(piece)
        return lambda parser: _sequence_of(parser, pieces)

    def _piece(self) -> _Node | None:
        atom = self._atom()
        if atom is None:
            return None
        is_repeated = False
        while (bounds := self._repetition()) is not None:
            if is_repeated:
                raise InvalidPattern("invalid nested repetition operator")
            is_repeated = True
            atom = _repeated(atom, *bounds)
        return atom

    def _repetition(self) -> tuple[int, int | None] | None:
        bounds: tuple[int, int | None]
        if self._take("*"):
            bounds = (0, None)
        elif self._take("+"):
            bounds = (1, None)
        elif self._take("?"):
            bounds = (0, 1)
        else:
            counted = self._counted()
            if counted is None:
                return None
            bounds = counted
        self._take("?")
        return bounds

    def _counted(self) -> tuple[int, int | None] | None:
        """Parse {n}, {n,} or {n,m}. Returns None for any other text: there, a brace is an ordinary character."""
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        bounds = int(least), (int(most) if most else None) if comma else int(least)
        if bounds[0] > REPEAT_MAX or (bounds[1] is not None and not bounds[0] <= bounds[1] <= REPEAT_MAX):
            raise InvalidPattern("invalid repeat count")
        return bounds

    def _atom(self) -> _Node | None:
        character = self._next("")
        if character == "(":
            return self._group()
        if character == "[":
            return _matching(self._set())
        if character == ".":
            return _matching(_ALL if "s" in self._flags else _ALL & ~_NEWLINE)
        if character in "^$":
            return _asserting(character)
        if character in "*+?":
            raise InvalidPattern(f"missing argument to repetition operator: `{character}`")
        if character == "\\":
            return self._escape()
        return _matching(self._folded(_mask_of(character)))

    def _group(self) -> _Node | None:
        outer_flags = self._flags
        if self._take("?"):
            if self._take("P<") or (not self._text.startswith(("<=", "<!"), self._at) and self._take("<")):
                self._name()
            elif not self._opens_group():
                return None
        node = self._alternatives()
        if not self._take(")"):
            raise InvalidPattern("missing closing )")
        self._flags = outer_flags
        return node

    def _name(self) -> None:
        name, closing, _ = self._text[self._at :].partition(">")
        if not closing or not name.isascii() or not name.replace("_", "a").isalnum():
            raise InvalidPattern("invalid named capture")
        self._at += len(name) + 1

    def _opens_group(self) -> bool:
        """Parse the flags after `(?`. Returns whether a group follows.

        (?flags:...) is a group with these flags. (?flags) sets the flags for the rest of the enclosing group.
        """
        flags, is_setting, has_any = set(self._flags), True, False
        while (character := self._next("missing closing )")) not in ":)":
            if character in "imsU":
                has_any = True
                (flags.add if is_setting else flags.discard)(character)
            elif character == "-" and is_setting:
                is_setting, has_any = False, False
            else:
                # RE2 does not support look-around, back references and some other syntax.
                raise InvalidPattern("invalid or unsupported Perl syntax")
        if not has_any and (character == ")" or not is_setting):
            raise InvalidPattern("missing argument to repetition operator: `?`")
        self._flags = frozenset(flags)
        return character == ":"

    def _escape(self) -> _Node:
        character = self._next("trailing backslash at end of expression")
        if character in "AzbB":
            return _asserting(character)
        if character == "C":
            return _matching(_ALL)
        mask = self._class_escape(character)
        return _matching(self._folded(self._character_escape(character) if mask is None else mask))

    def _class_escape(self, character: str) -> int | None:
        if character in "pP":
            name = self._next("invalid character class range")
            if name == "{":
                end = self._text.find("}", self._at)
                if end < 0:
                    raise InvalidPattern("invalid character class range")
                name = self._text[self._at : end]
                self._at = end + 1
            mask = self._folded(_property(name.removeprefix("^")))
            return mask if (character == "p") != name.startswith("^") else _ALL & ~mask
        mask_of_lower = _CLASS_ESCAPES.get(character.lower())
        if mask_of_lower is None or not character.isascii():
            return None
        return mask_of_lower if character.islower() else _ALL & ~mask_of_lower

    def _character_escape(self, character: str) -> int:
        """Return the mask of one escaped character: \\n, \\x41, \\101, or a metacharacter."""
        if character in _CHARACTER_ESCAPES:
            return 1 << _CHARACTER_ESCAPES[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self._peek() in tuple("01234567")):
            digits = character
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("")
            return _mask_of(chr(int(digits, 8)))
        if character.isalnum() or not character.isascii():
            raise InvalidPattern(f"invalid escape sequence: `\\{character}`")
        return _mask_of(character)

    def _hexadecimal(self) -> int:
        end = self._at + 2
        start = self._at
        if self._peek() == "{":
            start, end = self._at + 1, self._text.find("}", self._at)
        digits = self._text[start : max(end, start)]
        if not digits or len(digits) < end - start or any(one not in "0123456789abcdefABCDEF" for one in digits):
            raise InvalidPattern("invalid escape sequence: `\\x`")
        self._at = end + (start > self._at)
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise InvalidPattern("invalid escape sequence: `\\x`")
        return _mask_of(chr(code))

    def _set(self) -> int:
        is_negated = self._take("^")
        mask, is_first = 0, True
        while is_first or self._peek() != "]":
            is_first = False
            mask |= self._folded(self._set_item())
        self._at += 1
        return _ALL & ~mask if is_negated else mask

    def _set_item(self) -> int:
        if self._take("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : max(end, self._at)]
            if end < 0 or name.removeprefix("^") not in _POSIX:
                raise InvalidPattern("invalid character class range")
            self._at = end + 2
            mask = self._folded(_POSIX[name.removeprefix("^")])
            return _ALL & ~mask if name.startswith("^") else mask
        character = self._next("missing closing ]")
        if character == "\\":
            escaped = self._next("missing closing ]")
            of_class = self._class_escape(escaped)
            if of_class is not None:
                return of_class
            first = self._character_escape(escaped)
        else:
            first = _mask_of(character)
        if self._peek() != "-" or self._text.startswith("-]", self._at):
            return first
        self._at += 1
        character = self._next("missing closing ]")
        last = self._character_escape(self._next("missing closing ]")) if character == "\\" else _mask_of(character)
        if first and last and first > last:
            raise InvalidPattern("invalid character class range")
        # The result has all bits from `first` to `last`. If the last character is not ASCII, the result has all bits
        # from `first` on.
        return (((last << 1) if last else _ALL + 1) - first) if first else 0

    def _folded(self, mask: int) -> int:
        """Return the mask with both cases of every letter if the flag i is set. Call this before negating a set."""
        if "i" not in self._flags:
            return mask
        return mask | (mask & _LOWER) >> 32 | (mask & _UPPER) << 32


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(REPEAT_MAX)) + 1


def _mask_of(character: str) -> int:
    return 1 << ord(character) if ord(character) < 128 else 0


def _property(name: str) -> int:
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if name in _CATEGORIES.split():
        return sum(1 << code for code in range(128) if unicodedata.category(chr(code)).startswith(name))
    raise InvalidPattern("invalid character class range")


def _matching(mask: int) -> _Node:
    def build(parser: _Parser) -> Program:
        start, end = parser.state(mask), parser.state()
        start.follows.append(end)
        return Program(start, end)

    return build


def _asserting(kind: str) -> _Node:
    def build(parser: _Parser) -> Program:
        start, end = parser.state(None, _ASSERTIONS[kind]), parser.state()
        start.follows.append(end)
        return Program(start, end)

    return build


def _sequence_of(parser: _Parser, nodes: list[_Node]) -> Program:
    program = parser._empty()
    for node in nodes:
        piece = node(parser)
        program.end.follows.append(piece.start)
        program = Program(program.start, piece.end)
    return program


def _either(parser: _Parser, nodes: list[_Node]) -> Program:
    start, end = parser.state(), parser.state()
    for node in nodes:
        branch = node(parser)
        start.follows.append(branch.start)
        branch.end.follows.append(end)
    return Program(start, end)


def _repeated(node: _Node, least: int, most: int | None) -> _Node:
    def build(parser: _Parser) -> Program:
        program = parser._empty()
        for _ in range(least):
            program = _joined(program, node(parser))
        if most is None:
            again = node(parser)
            again.end.follows.append(again.start)
            end = parser.state()
            program.end.follows += [again.start, end]
            again.end.follows.append(end)
            return Program(program.start, end)
        end = parser.state()
        for _ in range(most - least):
            program.end.follows.append(end)
            program = _joined(program, node(parser))
        program.end.follows.append(end)
        return Program(program.start, end)

    return build


def _joined(first: Program, second: Program) -> Program:
    first.end.follows.append(second.start)
    return Program(first.start, second.end)

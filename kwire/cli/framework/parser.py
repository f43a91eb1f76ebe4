"""The parsers of commands and verbs. A command's module is imported when the command is used, not before.

Importing all modules would take longer than most commands run.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from kwire.cli.framework.help_text import USAGE, HelpText
from kwire.exit_codes import CANNOT_RUN

END_OF_OPTIONS = "--"
# Of words that share fewer letters than this, one is rarely a wrong spelling of the other.
SIMILARITY_MIN = 0.7
COMMANDS_SHOWN_MAX = 3

Run = Callable[[argparse.Namespace], int | None]


class Entry(NamedTuple):
    """A line of a table of commands or verbs: the purpose, and the module and its function that declare the options.

    `more` declares further options, if the module is not of this program.
    """

    purpose: str
    module: str
    function: str = "add"
    more: "Callable[[CommandParser], None] | None" = None


class CommandParser(argparse.ArgumentParser):
    """A parser that imports its module when it is used. `load` does it earlier."""

    def __init__(self, **arguments: Any) -> None:
        arguments.setdefault("formatter_class", HelpText)
        super().__init__(allow_abbrev=False, **arguments)
        self._entry: Entry | None = None

    def load(self) -> None:
        """Declare the options, verbs and jobs of this command."""
        entry, self._entry = self._entry, None
        if entry is not None:
            getattr(importlib.import_module(entry.module), entry.function)(self)
            if entry.more is not None:
                entry.more(self)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse options and positional arguments in any order, as other programs do: TOPIC --type T PAYLOAD.

        argparse itself would assign TOPIC and the missing PAYLOAD before it reads --type. Therefore options are parsed
        first, and the remaining words afterwards.
        """
        self.load()
        given = sys.argv[1:] if args is None else list(args)
        if self._subparsers is not None:
            if not given:
                self._show_choices()
            return super().parse_known_args(given, namespace)
        # It must not depend on what is declared below while an error is reported.
        self.usage = self.usage or self.format_usage().removeprefix(USAGE).rstrip()
        end = given.index(END_OF_OPTIONS) if END_OF_OPTIONS in given else len(given)
        options = [action for action in self._actions if action.option_strings]
        with _declared(self, options), _not_required(options):
            namespace, words = super().parse_known_args(given[:end], namespace)
        if last := given[end + 1 :]:
            words += [END_OF_OPTIONS, *last]
        done = [one for one in options if getattr(namespace, one.dest, None) != one.default]
        with _not_required([*done, *self._mutually_exclusive_groups]):
            namespace, unknown = super().parse_known_args(words, namespace)
        if unknown:
            # The error of this parser has the usage of the verb. That of the program would not help.
            self.error(_unrecognized(unknown, self._option_string_actions))
        return namespace, unknown

    def add_entries(self, kind: str, sections: Mapping[str, Mapping[str, Entry]]) -> None:
        """Declare commands or verbs (`kind` says which) with their modules, in sections of the help."""
        subparsers = self._subparsers_of(kind)
        for entries in sections.values():
            for name, entry in entries.items():
                parser = subparsers.add_parser(name, help=entry.purpose, description=sentence(entry.purpose))
                parser._entry = entry
        subparsers.sections = {name: section for section, entries in sections.items() for name in entries}

    def add_verbs(self, verbs: Mapping[str, Entry]) -> None:
        """Declare the verbs of a command, each with its module."""
        self.add_entries("verb", {"verbs": verbs})

    def verbs(self) -> Any:
        """Return what `add_verb` needs to declare verbs whose functions are in the same module."""
        subparsers = self._subparsers_of("verb")
        subparsers.sections = {}
        return subparsers

    def error(self, message: str) -> NoReturn:
        """End with exit code 2. The message is about the arguments."""
        print(f"kwire: {_with_suggestion(_with_plain_type(message), self._commands_with)}", file=sys.stderr)
        print(f"{self.format_usage()}try: {self.prog} --help", file=sys.stderr)
        sys.exit(CANNOT_RUN)

    def _commands_with(self, verb: str) -> list[str]:
        """Return the commands that have a verb, each with the verb: topic produce. Return none if many have it."""
        commands = self._choices()
        for parser in commands.values():
            parser.load()
        found = [f"{name} {verb}" for name, parser in commands.items() if verb in parser._choices()]
        return found if len(found) <= COMMANDS_SHOWN_MAX else []

    def _choices(self) -> "Mapping[str, CommandParser]":
        """Return the parsers of the commands or verbs, by name."""
        found = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return found[0].choices if found else {}

    def _show_choices(self) -> NoReturn:
        """End with exit code 2 and the help, because the command or the verb is missing."""
        kind = next(action.dest for action in self._actions if isinstance(action, argparse._SubParsersAction))
        print(f"kwire: a {kind} is missing\n\n{self.format_help()}", end="", file=sys.stderr)
        sys.exit(CANNOT_RUN)

    def _subparsers_of(self, kind: str) -> Any:
        return self.add_subparsers(dest=kind, required=True, metavar=kind, title=f"{kind}s", parser_class=CommandParser)


def add_verb(
    verbs: Any, name: str, purpose: str, run: Run, *, description: str | None = None, epilog: str | None = None
) -> CommandParser:
    """Declare a verb. `run` is called with the options. The line breaks of `description` are kept in the help."""
    parser: CommandParser = verbs.add_parser(
        name, help=purpose, description=description or sentence(purpose), epilog=epilog
    )
    parser.set_defaults(run=run)
    return parser


def sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."


@contextmanager
def _declared(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> Iterator[None]:
    """Reduce the parser to these actions."""
    every, parser._actions = parser._actions, actions
    try:
        yield
    finally:
        parser._actions = every


@contextmanager
def _not_required(parts: Sequence[Any]) -> Iterator[None]:
    """Make options, or groups of options, optional."""
    required = [part for part in parts if part.required]
    for part in required:
        part.required = False
    try:
        yield
    finally:
        for part in required:
            part.required = True


def _with_plain_type(message: str) -> str:
    """Replace the names of Python's types: argument --count: must be a whole number, got 'x'."""
    for name, text in (("int", "a whole number"), ("float", "a number")):
        message = message.replace(f": invalid {name} value: ", f": must be {text}, got ")
    return message


def _unrecognized(words: Sequence[str], known: Iterable[str]) -> str:
    """Return the message about words that are neither options nor expected names."""
    given, options = words[0].partition("=")[0], [option for option in known if option.startswith("--")]
    # Kafka's own tools have longer names for some options, such as --from-beginning.
    shorter = [option for option in options if given.startswith(f"{option}-")]
    similar = _similar(given, options) or next(iter(shorter), None)
    hint = f"; did you mean {similar}?" if similar and words[0].startswith("-") else ""
    return f"unrecognized arguments: {' '.join(words)}{hint}"


def _similar(given: str, known: Sequence[str]) -> str | None:
    # Imported here, because most command lines are correct.
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, known, n=1, cutoff=SIMILARITY_MIN)), None)


def _with_suggestion(message: str, commands_with: Callable[[str], list[str]]) -> str:
    """Add the most similar choice to the message about an unknown command or choice.

    A verb in the place of a command gets the commands that have it.
    """
    _, invalid, rest = message.partition("invalid choice: ")
    given, _, choices = rest.partition(" (choose from ")
    if not invalid or not choices:
        return message
    known = [choice.strip("' ") for choice in choices.rstrip(")").split(",")]
    word = given.strip("'")
    similar = " or ".join(commands_with(word)) or _similar(word, known)
    hint = f"did you mean {similar}?" if similar else f"choose from {', '.join(known)}"
    return f"{given} is not a known {message.partition(':')[0].removeprefix('argument ')}: {hint}"

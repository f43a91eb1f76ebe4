"""The words that can follow on a command line: commands, verbs, options, their choices, and where files belong.

The scripts of `shell_scripts.py` call `kwire __complete WORD…` whenever the user presses Tab, so the answer always fits
the installed version. The last word is the one to complete. The answer is a line that says whether file names may
follow (`files`, `directories` or nothing), then one line per word: the word, a tab and its description.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kwire.cli.framework.parser import CommandParser

COMPLETE_COMMAND = "__complete"
FILES, DIRECTORIES, NO_FILES = "files", "directories", ""
_DIRECTORY_METAVARS = ("DIR", "DATA_DIR")
_FILE_METAVARS = ("FILE", "PATH")
_MANY = ("+", "*")


class Candidate(NamedTuple):
    """A word that may follow, and what it means."""

    word: str
    description: str


class Completion(NamedTuple):
    """The words that may follow, and whether names of files or directories may."""

    candidates: list[Candidate]
    files: str = NO_FILES

    def text(self) -> str:
        return "\n".join([self.files, *(f"{one.word}\t{one.description}" for one in self.candidates)])


def completion_of(parser: CommandParser, words: Sequence[str]) -> Completion:
    """Return what can stand in the place of the last word."""
    *before, current = _with_values_joined(words) or [""]
    walk = _Walk(parser)
    for word in before:
        if not walk.step(word):
            return Completion([])
    return walk.complete(current)


class _Walk:
    """Reads the words before the cursor as argparse would."""

    def __init__(self, parser: CommandParser) -> None:
        self.enter(parser)

    def enter(self, parser: CommandParser) -> None:
        parser.load()
        self.parser = parser
        self.positionals = [action for action in parser._actions if not action.option_strings]
        # The option whose value comes next.
        self.option: argparse.Action | None = None
        self.given: set[argparse.Action] = set()
        self.has_only_positionals = False

    def step(self, word: str) -> bool:
        """Read a word. Return False if nothing can be said about the words after it."""
        if self.is_option(word):
            self.option = None
            if word == "--":
                self.has_only_positionals = True
                return True
            name, equals, _ = word.partition("=")
            action = self.parser._option_string_actions.get(name)
            if action is not None:
                self.given.add(action)
                self.option = action if action.nargs != 0 and not equals else None
            return True
        if self.option is not None:
            if self.option.nargs not in _MANY:
                self.option = None
            return True
        if not self.positionals:
            return True
        action = self.positionals[0]
        if isinstance(action, argparse._SubParsersAction):
            chosen = action.choices.get(word)
            if chosen is None:
                return False
            self.enter(chosen)
        elif action.nargs not in _MANY:
            self.positionals.pop(0)
        return True

    def complete(self, current: str) -> Completion:
        name, equals, value = current.partition("=")
        if equals and self.is_option(current):
            action = self.parser._option_string_actions.get(name)
            if action is None:
                return Completion([])
            found = _values_of(action, value)
            return found._replace(candidates=[Candidate(f"{name}={one}", text) for one, text in found.candidates])
        if self.is_option(current):
            return Completion(list(self.options(current)))
        if self.option is not None:
            return _values_of(self.option, current)
        if self.positionals:
            return _values_of(self.positionals[0], current)
        return Completion(list(self.options(current)))

    def is_option(self, word: str) -> bool:
        return word.startswith("-") and not self.has_only_positionals and self.option_takes_no(word)

    def option_takes_no(self, word: str) -> bool:
        """Return whether the word is not the value of the option before it: -5 may be one, --x is not."""
        return self.option is None or not word[1:].isdecimal()

    def options(self, prefix: str) -> Iterator[Candidate]:
        for action in self.parser._actions:
            is_repeatable = isinstance(action, argparse._AppendAction)
            if action.help == argparse.SUPPRESS or (action in self.given and not is_repeatable):
                continue
            matching = [name for name in action.option_strings if name.startswith(prefix)]
            if matching:
                # One name of each option: the long one, unless the user has begun to type another.
                name = next((one for one in matching if one.startswith("--")), matching[0])
                yield Candidate(name, _description(action))


def _values_of(action: argparse.Action, prefix: str) -> Completion:
    if isinstance(action, argparse._SubParsersAction):
        choices = [Candidate(one.dest, _description(one)) for one in action._get_subactions()]
    elif action.choices is not None:
        choices = [Candidate(str(choice), "") for choice in action.choices]
    else:
        return Completion([], _files_of(action))
    return Completion([one for one in choices if one.word.startswith(prefix)])


def _files_of(action: argparse.Action) -> str:
    if action.metavar in _DIRECTORY_METAVARS:
        return DIRECTORIES
    return FILES if action.type is Path or action.metavar in _FILE_METAVARS else NO_FILES


def _description(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())


def _with_values_joined(words: Sequence[str]) -> list[str]:
    """Return the words with `--option`, `=` and `value` joined. Bash divides them."""
    joined: list[str] = []
    is_value = False
    for word in words:
        if word == "=" and joined and joined[-1].startswith("--"):
            joined[-1] += word
            is_value = True
        elif is_value:
            joined[-1] += word
            is_value = False
        else:
            joined.append(word)
    return joined

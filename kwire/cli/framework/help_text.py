"""Formats the text of --help: a short usage line, aligned columns, sections of commands, bold headings on terminals."""

import argparse
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from kwire.cli.framework.colours import BOLD, coloured

WIDTH_MAX = 100
USAGE = "usage: "
# The column in which the descriptions of options begin, unless an option is longer.
COLUMN_MAX = 32


class HelpText(argparse.RawDescriptionHelpFormatter):
    """A formatter for argparse. The line breaks of descriptions are kept."""

    def __init__(self, prog: str) -> None:
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, max_help_position=COLUMN_MAX, width=width)

    def start_section(self, heading: str | None) -> None:
        super().start_section(None if heading is None else coloured(heading, BOLD, sys.stdout))

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        """Return the usage with the required arguments only, because the options are listed below it."""
        if usage is not None:
            return f"{USAGE}{usage}\n\n"
        # argparse asks with another prefix for the name of a subparser.
        is_help = prefix is None
        words = [self._prog]
        for action in actions:
            if action.option_strings and action.required:
                words += [action.option_strings[-1], self._metavar_of(action)]
        if is_help and any(action.option_strings for action in actions):
            words.append("[options]")
        words += [self._format_args(one, self._positional_metavar(one)) for one in actions if not one.option_strings]
        return f"{USAGE if is_help else prefix}{' '.join(word for word in words if word)}\n\n"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return an option with its value named once: -o, --output FORMAT."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {self._format_args(action, self._default_metavar(action))}"
        return f"{', '.join(action.option_strings)}{value}"

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        sections: dict[str, str] = getattr(action, "sections", {})
        parts, last = [], ""
        for one in action._get_subactions():
            section = sections.get(one.dest, "")
            if section != last and len(set(sections.values())) > 1:
                parts.append(f"{'' if not last else chr(10)}  {coloured(section, BOLD, sys.stdout)}:\n")
                last = section
            parts.append(super()._format_action(one))
        return self._join_parts(parts)

    def _metavar_of(self, action: argparse.Action) -> str:
        return "" if action.nargs == 0 else self._format_args(action, self._default_metavar(action))

    def _default_metavar(self, action: argparse.Action) -> str:
        return self._get_default_metavar_for_optional(action)

    def _positional_metavar(self, action: argparse.Action) -> str:
        return self._get_default_metavar_for_positional(action)

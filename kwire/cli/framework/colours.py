"""Colours for terminals. Files, pipes, dumb terminals and users who set NO_COLOR (no-color.org) get plain text."""

from typing import TextIO

from kwire.colours import is_coloured

BOLD, RED = "\x1b[1m", "\x1b[31m"
_RESET = "\x1b[0m"


def coloured(text: str, style: str, stream: TextIO) -> str:
    """Return the text in this style if the stream is a terminal that shows colours."""
    return f"{style}{text}{_RESET}" if is_coloured(stream) else text

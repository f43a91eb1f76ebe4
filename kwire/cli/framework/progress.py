"""Progress bars of commands: on terminals only, unless --quiet was given."""

import sys
from collections.abc import Callable

from kwire.progress import Progress


def progress_bar(
    what: str, total: int, *, is_wanted: bool = True, amount_text: Callable[[int], str] | None = None
) -> Progress:
    """Return a bar for stderr. `total` is in bytes, or in the unit of `amount_text`."""
    return Progress(what, total, sys.stderr, is_shown=is_wanted and sys.stderr.isatty(), amount_text=amount_text)

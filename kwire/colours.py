"""Whether texts on a stream have colours: only on terminals."""

import os
from typing import TextIO


def is_coloured(stream: TextIO) -> bool:
    """Return whether a stream shows colours. Dumb terminals and users who set NO_COLOR (no-color.org) get none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

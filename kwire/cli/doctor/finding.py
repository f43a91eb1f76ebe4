"""A finding of `kwire doctor`: what was checked, what is wrong with it and what to do."""

from typing import Final

import msgspec

OK: Final = "ok"
# Something that will become a problem, or that may be meant so.
WARNING: Final = "warning"
PROBLEM: Final = "problem"
# The check could not be made.
SKIPPED: Final = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. `remedy` says what to do; it is empty if the result is OK."""

    check: str
    result: str
    text: str
    remedy: str = ""

    @property
    def is_bad(self) -> bool:
        return self.result in (WARNING, PROBLEM)

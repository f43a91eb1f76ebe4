"""Verbs with several names: a failure is reported, the other names are still done, and the exit code is 1."""

import argparse
from collections.abc import Callable, Iterable

from kwire.cli.framework.errors import CannotContinue
from kwire.cli.framework.output import print_done
from kwire.cli.framework.runner import error_text, is_expected, print_error
from kwire.exit_codes import DONE, FAILED


class Outcomes:
    """Counts what succeeded and what failed. Failures are printed at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failures = 0

    def add(self, name: str) -> None:
        self.done.append(name)

    def fail(self, reason: str) -> None:
        self.failures += 1
        print_error(reason)

    @property
    def code(self) -> int:
        return FAILED if self.failures else DONE

    def finish(self, done: str, options: argparse.Namespace) -> int:
        """Print what was done, such as `deleted orders`, and return the exit code."""
        print_done(done, self.done, options)
        return self.code


def for_each(names: Iterable[str], act: Callable[[str], None]) -> Outcomes:
    """Call `act` for each name once, also after a failure.

    Raises CannotContinue, because the next name would fail, too.
    """
    outcomes = Outcomes()
    for name in dict.fromkeys(names):
        try:
            act(name)
        except (CannotContinue, BrokenPipeError):
            raise
        except Exception as error:
            if not is_expected(error):
                raise
            outcomes.fail(error_text(error))
        else:
            outcomes.add(name)
    return outcomes

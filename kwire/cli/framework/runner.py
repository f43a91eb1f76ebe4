"""Runs one command: parses the arguments, calls its function, and converts errors to messages and exit codes."""

import os
import sys
from collections.abc import Sequence

from kwire.cli.framework.colours import RED, coloured
from kwire.cli.framework.errors import CannotContinue, CannotRun, ReaderGone
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.exit_codes import BROKEN_PIPE, CANNOT_RUN, FAILED, INTERRUPTED

# With this variable set, an error that is a mistake in kwire is shown with its traceback.
DEBUG_VARIABLE = "KWIRE_DEBUG"
# The default of parsers whose commands usually end by Ctrl-C. Such an end is not reported.
RUNS_UNTIL_INTERRUPT = "runs_until_interrupt"


def run_command(parser: CommandParser, arguments: Sequence[str]) -> int:
    """Parse the arguments, run the command and return its exit code.

    Raises SystemExit as argparse does: after --help and --version, and with code 2 if the arguments are wrong.
    """
    failure_code, shows_traceback = FAILED, bool(os.environ.get(DEBUG_VARIABLE))
    runs_until_interrupt = False
    try:
        options = parser.parse_args(arguments)
        # Commands that report findings with exit code 1 set this to CANNOT_RUN.
        failure_code = getattr(options, "failure_code", FAILED)
        # The server sets this: its operators need the traceback.
        shows_traceback |= getattr(options, "shows_traceback", False)
        runs_until_interrupt = getattr(options, RUNS_UNTIL_INTERRUPT, False)
        code: int | None = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        if not runs_until_interrupt:
            print_error("interrupted")
        elif sys.stderr.isatty():
            # The terminal has shown ^C. The prompt of the shell begins on a line of its own.
            print(file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, ReaderGone):
        _discard_output()
        return BROKEN_PIPE
    except Exception as error:
        text = _text_of_expected(error)
        if text is None:
            if shows_traceback:
                raise
            text = f"internal error: {error}\nset {DEBUG_VARIABLE}=1 to see where, and please report it"
        print_error(text)
        if isinstance(error, CannotRun):
            return CANNOT_RUN
        return FAILED if isinstance(error, CannotContinue) else failure_code
    return code or 0


def print_error(text: str) -> None:
    """Print an error message to stderr. Every line begins with the name of the program."""
    # Without this, the error would overtake lines that were printed before it.
    sys.stdout.flush()
    prefix = coloured("kwire:", RED, sys.stderr)
    for line in text.splitlines() or [""]:
        print(f"{prefix} {printable(line)}", file=sys.stderr)


def error_text(error: Exception) -> str:
    """Return the message of an error without the name of its class."""
    if isinstance(error, OSError) and error.strerror and type(error).__str__ is OSError.__str__:
        named = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([*named, error.strerror])
    return str(error)


def is_expected(error: Exception) -> bool:
    """Return whether an error has a message for the user. Other errors are mistakes in kwire."""
    # Imported here, because most commands end without an error.
    from kwire.errors import KafkaError
    from storage.errors import StorageError

    return isinstance(error, (CannotContinue, ValueError, OSError, KafkaError, StorageError))


def _text_of_expected(error: Exception) -> str | None:
    return error_text(error) if is_expected(error) else None


def _discard_output() -> None:
    # The reader closed the pipe. Stdout is redirected to /dev/null, because otherwise Python would fail again when it
    # flushes stdout at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

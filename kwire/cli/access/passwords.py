"""New passwords for commands: from standard input, or from a prompt, twice."""

import argparse
import getpass
import sys

from kwire.access.users.users import check_password_length
from kwire.cli.framework.errors import UsageError
from kwire.config.settings.access import PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MIN_DEFAULT


def add_password_stdin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--password-stdin",
        action="store_true",
        help="read the password from the first line of standard input; it needs at least "
        f"{PASSWORD_LENGTH_MIN_DEFAULT} characters (set by {PASSWORD_LENGTH_MIN} of the server)",
    )


def new_password(name: str, length_min: int, options: argparse.Namespace) -> str:
    """Return the new password of a user. Raises ValueError if it is too short, or if two entries differ."""
    if options.password_stdin:
        # Only the end of the line is removed: spaces may belong to the password.
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"New password of {name}: ")
        check_password_length(password, length_min)
        if getpass.getpass("Repeat the password: ") != password:
            raise ValueError("the two passwords differ, nothing was changed")
    else:
        raise UsageError("there is no terminal to ask for the password: use --password-stdin")
    check_password_length(password, length_min)
    return password

"""New passwords for commands: from standard input, or from a prompt, twice."""

import argparse
import getpass
import sys

from kwire.cli.framework.errors import UsageError


def add_password_stdin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from the first line of standard input"
    )


def new_password(name: str, options: argparse.Namespace) -> str:
    """Return the new password of a user. Raises ValueError if it is empty, or if two entries differ."""
    if options.password_stdin:
        # Only the end of the line is removed: spaces may belong to the password.
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"New password of {name}: ")
        if password and getpass.getpass("Repeat the password: ") != password:
            raise ValueError("the two passwords differ, nothing was changed")
    else:
        raise UsageError("there is no terminal to ask for the password: use --password-stdin")
    if not password:
        raise ValueError("the password must not be empty")
    return password

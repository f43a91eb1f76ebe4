"""The `kwire` program. Each command has its own module, whose function `add` declares arguments and subcommands.

A command's module is imported only when the command is used, so that `kwire serve` starts fast.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from kwire.exit_codes import INTERRUPTED

COMMANDS = {
    "serve": "run the server",
    "topic": "list, create, describe and delete topics",
    "group": "list, describe, delete and reset consumer groups",
    "tls": "make certificates for development",
    "user": "create, list and delete users, change passwords",
    "key": "create, list, rotate and revoke API keys",
    "acl": "add, list and delete ACLs",
    "room": "list, create, describe, delete, publish to and follow rooms",
    "event": "export events to files and import them; verify and pack such files",
    "webhook": "send events to HTTP receivers: create, describe, pause, resend and replay webhooks",
    "pipeline": "run Spark jobs: lake tables, maintenance, analytics of rooms, replay, reconcile",
    "log": "verify and print the files of a data directory, rebuild its catalogue",
    "wire": "decode captured frames of the Kafka protocol",
}


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("kwire: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="kwire", description="A Kafka-compatible server that is pleasant to run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for command, purpose in COMMANDS.items():
        command_parser = commands.add_parser(command, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
        if command == chosen:
            importlib.import_module(f"kwire.cli.{command}").add(command_parser)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code

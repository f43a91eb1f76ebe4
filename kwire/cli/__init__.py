"""The `kwire` program: one file per noun, each with `add` (its arguments) and the functions its verbs run.

A noun's file is imported only when it is used, so that `kwire serve` starts fast.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

NOUNS = {
    "serve": "run the server",
    "topic": "list, create, describe and delete topics",
    "group": "list, describe, delete and reset consumer groups",
    "room": "list, create, describe, delete, publish to and follow rooms",
    "event": "export events to files, import, check and pack them",
    "webhook": "have events sent to receivers: create, watch, pause, resend and replay webhooks",
    "pipeline": "run Spark jobs: topics to tables, analytics of rooms, replay, reconcile",
    "log": "check and print the files of a data directory",
    "wire": "print captured frames of the Kafka protocol",
}

# As shells report a program that was ended by Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("kwire: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="kwire", description="A Kafka-compatible server that is pleasant to run.")
    nouns = parser.add_subparsers(dest="noun", required=True, metavar="command")
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for noun, purpose in NOUNS.items():
        below = nouns.add_parser(noun, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
        if noun == chosen:
            importlib.import_module(f"kwire.cli.{noun}").add(below)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code

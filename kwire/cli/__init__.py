"""The `kwire` program: its table of commands.

A command's module is imported only when the command is used, so that `kwire serve` starts fast.
"""

import sys
from collections.abc import Sequence

from kwire import __version__
from kwire.cli.framework.parser import CommandParser, Entry
from kwire.cli.framework.runner import run_command

COMMANDS = {
    "server": {
        "serve": Entry("run the server", "kwire.cli.serve"),
        "bridge": Entry("serve rooms over an existing Kafka cluster", "kwire.cli.bridge"),
        "log": Entry("verify and print the files of a data directory, rebuild its catalogue", "kwire.cli.log"),
        "backup": Entry("back up a running server, verify and restore backups", "kwire.cli.backup"),
        "cluster": Entry("show the state of a running server, and whether it is healthy", "kwire.cli.cluster"),
        "doctor": Entry("find out why a server or its clients do not work, and what to do", "kwire.cli.doctor"),
    },
    "Kafka": {
        "topic": Entry("create, describe, alter and delete topics, write and read records", "kwire.cli.topic"),
        "group": Entry("list, describe, reset, export and delete consumer groups", "kwire.cli.group"),
        "txn": Entry("list, describe and abort transactions, find those that hang", "kwire.cli.txn"),
        "config": Entry("list, describe, set and delete settings of brokers, topics and groups", "kwire.cli.config"),
        "bench": Entry("measure a Kafka server with a short load", "kwire.cli.bench"),
        "wire": Entry("decode captured frames of the Kafka protocol", "kwire.cli.wire"),
    },
    "rooms and events": {
        "room": Entry("list, create, describe, delete, publish to, read and follow rooms", "kwire.cli.room"),
        "event": Entry("publish, list and follow events, export them to files and import them", "kwire.cli.event"),
        "schema": Entry("list, show, register, check and delete schemas of events", "kwire.cli.schema"),
        "webhook": Entry(
            "send events to HTTP receivers: create, describe, pause, resend and replay webhooks", "kwire.cli.webhook"
        ),
        "pipeline": Entry(
            "run Spark jobs: lake tables, maintenance, analytics of rooms, replay, reconcile", "kwire.cli.pipeline"
        ),
    },
    "access": {
        "user": Entry("create, list and delete users, change passwords", "kwire.cli.access.user"),
        "key": Entry("create, list, rotate and revoke API keys", "kwire.cli.access.key"),
        "acl": Entry("add, list and delete ACLs", "kwire.cli.access.acl"),
        "quota": Entry("list, set and delete quotas of users, client ids and addresses", "kwire.cli.access.quota"),
        "tls": Entry("make certificates for development", "kwire.cli.tls"),
    },
    "this program": {
        "example": Entry("run an example: chat, game lobby, monitoring, plot", "kwire.cli.example"),
        "profile": Entry("store the addresses and logins of servers under a name", "kwire.cli.profile"),
        "completion": Entry("print the completion script of a shell", "kwire.cli.completion"),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["__complete"]:
        from kwire.cli.framework.completion import completion_of

        print(completion_of(program_parser(), given[1:]).text())
        return 0
    return run_command(program_parser(), given)


def program_parser() -> CommandParser:
    """Return the parser of all commands. The options of a command are declared when the command is used."""
    parser = CommandParser(prog="kwire", description="A Kafka-compatible server that is pleasant to run.")
    parser.add_argument("--version", action="version", version=f"kwire {__version__}")
    parser.add_entries("command", COMMANDS)
    return parser

"""kwire topic alter: sets or deletes settings of topics."""

import argparse

from kwire.cli.config.resources import DELETE, SET, TOPIC, Change, Resource, change_settings
from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.values.assignments import add_config, assignments_of


def add(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    add_config(parser, "set a setting of the topics")
    parser.add_argument(
        "--delete-config",
        metavar="KEY",
        action="append",
        default=[],
        help="delete a setting of the topics, so that the server's default applies; repeatable",
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    wanted = assignments_of(options.config)
    deleted = [name for name in options.delete_config if name not in wanted]
    if len(deleted) < len(options.delete_config):
        raise UsageError("a setting cannot be set and deleted at the same time")
    changes = [Change(SET, name, value) for name, value in wanted.items()]
    changes += [Change(DELETE, name) for name in dict.fromkeys(deleted)]
    if not changes:
        raise UsageError("nothing to change: name a setting with --config KEY=VALUE or --delete-config KEY")
    with kafka_client_of(options) as client:
        outcomes = Outcomes()
        found = change_settings(client, {Resource(TOPIC, name): changes for name in options.names})
    for resource, (code, message) in found.items():
        if code:
            outcomes.fail(refusal(f"topic {resource.name}", code, message))
        else:
            outcomes.add(resource.name)
    return outcomes.finish("altered", options)

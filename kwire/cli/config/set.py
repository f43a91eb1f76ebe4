"""kwire config set: sets settings of brokers, topics and groups."""

import argparse

from kwire.cli.config.resources import HELP, METAVAR, SET, Change, change_settings, parse_resource
from kwire.cli.connection.error_texts import refusal
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.values.assignments import add_config, assignments_of


def add(parser: CommandParser) -> None:
    parser.add_argument("resources", metavar=METAVAR, nargs="+", help=HELP)
    add_config(parser, "a setting and its value", is_required=True)
    parser.add_argument("--check", action="store_true", help="only check whether the server accepts the values")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    changes = [Change(SET, name, value) for name, value in assignments_of(options.config).items()]
    resources = [parse_resource(word) for word in dict.fromkeys(options.resources)]
    outcomes = Outcomes()
    with kafka_client_of(options) as client:
        found = change_settings(client, dict.fromkeys(resources, changes), is_checked_only=options.check)
    for resource, (code, message) in found.items():
        if code:
            outcomes.fail(refusal(str(resource), code, message))
        else:
            outcomes.add(str(resource))
    return outcomes.finish("valid" if options.check else "altered", options)

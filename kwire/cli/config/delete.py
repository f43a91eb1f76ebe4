"""kwire config delete: deletes settings of brokers, topics and groups, so that their defaults apply again."""

import argparse

from kwire.cli.config.resources import (
    DELETE,
    HELP,
    METAVAR,
    Change,
    change_settings,
    is_own,
    parse_resource,
    settings_of,
)
from kwire.cli.connection.error_texts import check
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each


def add(parser: CommandParser) -> None:
    parser.add_argument("resources", metavar=METAVAR, nargs="+", help=HELP)
    parser.add_argument(
        "--config", metavar="KEY", action="append", default=[], required=True, help="a setting to delete; repeatable"
    )
    add_yes(parser)
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    keys = list(dict.fromkeys(options.config))
    resources = [parse_resource(word) for word in dict.fromkeys(options.resources)]
    with kafka_client_of(options) as client:
        confirm(f"delete {counted_names('setting', keys)} of {', '.join(map(str, resources))}", options)

        def delete(word: str) -> None:
            resource = parse_resource(word)
            own = {one.name for one in settings_of(client, resource) if is_own(resource, one)}
            missing = [key for key in keys if key not in own]
            if missing:
                raise ValueError(f"{resource} has no value of its own for {missing[0]}")
            changed = change_settings(client, {resource: [Change(DELETE, key) for key in keys]})
            check(str(resource), *changed[resource])

        return for_each(options.resources, delete).finish("altered", options)

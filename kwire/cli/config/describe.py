"""kwire config describe: all settings of resources, with source, default, type and documentation."""

import argparse
from typing import Any

from kwire.cli.config.resources import HELP, METAVAR, parse_resource, setting_row, settings_of
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.output import add_output, is_data, print_data, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each
from kwire.cli.framework.tables import cell

COLUMNS = ("name", "value", "source")
WIDE_COLUMNS = ("default", "type", "read_only", "documentation")


def add(parser: CommandParser) -> None:
    parser.add_argument("resources", metavar=METAVAR, nargs="+", help=HELP)
    parser.add_argument(
        "--config",
        metavar="KEY",
        action="append",
        default=[],
        help="only this setting, with its documentation; repeatable",
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for word in options.resources:
        parse_resource(word)
    with kafka_client_of(options) as client:
        return for_each(options.resources, lambda word: _describe(client, word, options)).code


def _describe(client: KafkaClient, word: str, options: argparse.Namespace) -> None:
    rows = [setting_row(one) for one in settings_of(client, parse_resource(word), with_documentation=True)]
    if options.config:
        by_name = {row["name"]: row for row in rows}
        missing = [name for name in options.config if name not in by_name]
        if missing:
            raise ValueError(f"{word} has no setting {missing[0]}")
        rows = [by_name[name] for name in dict.fromkeys(options.config)]
    if is_data(options):
        print_data({"resource": word, "settings": rows}, options)
        return
    if len(options.resources) > 1:
        print(printable(word))
    if options.config:
        for row in rows:
            _print_setting(row)
    else:
        print_rows(rows, COLUMNS, options, wide=WIDE_COLUMNS)


def _print_setting(row: dict[str, Any]) -> None:
    print(printable(f"{row['name']}={cell(row['value'])}"))
    for name in ("source", "default", "type", "read_only"):
        print(printable(f"  {name.replace('_', '-')}: {cell(row[name])}"))
    if row["documentation"]:
        import textwrap

        for line in textwrap.wrap(row["documentation"], width=96):
            print(printable(f"  {line}"))

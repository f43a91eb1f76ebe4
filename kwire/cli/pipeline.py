"""kwire pipeline: Spark jobs on the topics and rooms of a running server.

The jobs also run without this program (spark-submit). This program adds profiles: a job gets the addresses of one.
"""

import argparse
import os

from kwire.cli.connection.options import add_source_options, source_of_options
from kwire.cli.connection.settings import PASSWORD_VARIABLE, USER_VARIABLE, http_settings, kafka_settings
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.parser import CommandParser, Entry
from kwire.pipeline import jobs

PLAINTEXT = "PLAINTEXT"


def add(parser: CommandParser) -> None:
    listed = {name: Entry(job.purpose, job.module, "add_arguments", _add_profile) for name, job in jobs.JOBS.items()}
    parser.add_entries("job", {"jobs": listed})
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if hasattr(options, "bootstrap"):
        _add_addresses(options)
    return jobs.run(options)


def _add_profile(parser: CommandParser) -> None:
    if "--bootstrap-server" in parser._option_string_actions:
        add_source_options(parser.add_argument_group("connection"))
        # The options, the environment, the profile and the defaults are tried in this order, in `_add_addresses`.
        parser.set_defaults(bootstrap=None, http=None)


def _add_addresses(options: argparse.Namespace) -> None:
    """Set the addresses from the options, the environment, the profile or the defaults. Raises UsageError."""
    if options.bootstrap and options.http and not (options.profile or options.command_config):
        return
    source = source_of_options(options)
    # Jobs have no login, so those of the environment are for other commands.
    environment = {name: value for name, value in os.environ.items() if name not in (USER_VARIABLE, PASSWORD_VARIABLE)}
    kafka = kafka_settings(source, environment, bootstrap_server=options.bootstrap)
    http = http_settings(source, environment, url=options.http)
    if kafka.protocol != PLAINTEXT or http.url.startswith("https:"):
        raise UsageError(
            f"{source.name or 'the server'}: jobs connect without TLS and without a login; name listeners without them "
            "with --bootstrap-server and --http"
        )
    options.bootstrap, options.http = kafka.bootstrap_server, http.url

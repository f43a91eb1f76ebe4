"""kwire doctor: looks for the usual reasons why a server or its clients do not work, and says what to do."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict

from kwire import __version__
from kwire.cli.connection.errors import LoginRefused
from kwire.cli.connection.options import add_connection_options, http_client_of, kafka_client_of
from kwire.cli.doctor.finding import OK, PROBLEM, WARNING, Finding
from kwire.cli.framework.colours import BOLD, RED, coloured
from kwire.cli.framework.errors import CannotContinue, CannotRun, UsageError
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.exit_codes import FAILED

STYLES = {WARNING: BOLD, PROBLEM: RED}


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--data-dir",
        dest="data_dirs",
        metavar="DIR",
        action="append",
        default=[],
        type=Path,
        help="check this data directory on this machine; can be repeated. Without --bootstrap-server and --http, no "
        "server is checked",
    )
    add_connection_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    findings = list(examine(options))
    is_healthy = not any(one.is_bad for one in findings)
    value = {"is_healthy": is_healthy, "findings": [asdict(one) for one in findings]}
    print_object(value, options, lambda: print_findings(findings))
    return 0 if is_healthy else FAILED


def examine(options: argparse.Namespace) -> Iterator[Finding]:
    if not options.data_dirs or options.bootstrap_server is not None or options.http is not None:
        yield from examine_kafka(options)
        yield from examine_http(options)
    for data_dir in options.data_dirs:
        # Imported here, because it takes as long as the other checks.
        from kwire.cli.doctor.data_directory import check_data_directory

        yield from check_data_directory(data_dir)


def examine_kafka(options: argparse.Namespace) -> Iterator[Finding]:
    from kwire.cli.doctor.network import check_advertised
    from kwire.kafka_client.settings import Address

    try:
        client = kafka_client_of(options)
    except UsageError:
        raise
    except LoginRefused as error:
        yield Finding("Kafka port", PROBLEM, str(error), "check the user and the password")
        return
    except CannotRun as error:
        yield Finding(
            "Kafka port", PROBLEM, str(error), "start the server, or check --bootstrap-server and the firewall"
        )
        return
    with client:
        yield Finding("Kafka port", OK, f"{client.address} answers")
        try:
            brokers = client.metadata([]).brokers
        except (CannotContinue, ValueError) as error:
            remedy = "check the address and the login; the port may belong to another program"
            yield Finding("Kafka port", PROBLEM, str(error), remedy)
            return
        yield from check_advertised([Address(one.host, one.port) for one in brokers], client.address)


def examine_http(options: argparse.Namespace) -> Iterator[Finding]:
    from kwire.cli.doctor.node_state import ClockReading, check_clock, check_node

    with http_client_of(options) as client:
        try:
            client.request("GET", "/healthz")  # connects, so that the connection is not a part of the measured time
            before_ms = time.time_ns() // 1_000_000
            node = client.request("GET", "/admin/node")
            after_ms = time.time_ns() // 1_000_000
        except UsageError:
            raise
        except CannotRun as error:
            remedy = (
                "set kwire.http.listener (kwire serve --http), or check --http; the state of the server is not known"
            )
            yield Finding("HTTP port", PROBLEM, str(error), remedy)
            return
        except ValueError as error:
            remedy = "use an administrator's login; a server without GET /admin/node is of an earlier version"
            yield Finding("HTTP port", WARNING, f"the state of the server cannot be read: {error}", remedy)
            return
    yield Finding("HTTP port", OK, "the HTTP port answers")
    yield from check_node(node, __version__)
    yield check_clock(ClockReading(before_ms, node["time_ms"], after_ms))


def print_findings(findings: list[Finding]) -> None:
    width = max(len(one.check) for one in findings)
    for one in findings:
        result = f"{one.result:<7}"
        if one.result in STYLES:
            result = coloured(result, STYLES[one.result], sys.stdout)
        print(f"{result}  {one.check:<{width}}  {one.text}")
        if one.remedy:
            print(f"{'':<{width + 11}}what to do: {one.remedy}")
    bad = sum(one.is_bad for one in findings)
    print(f"{bad} of {len(findings)} checks found something" if bad else f"{len(findings)} checks found nothing wrong")

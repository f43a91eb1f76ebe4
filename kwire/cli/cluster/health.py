"""kwire cluster health: checks the state that a server reports about itself. For load balancers and scripts."""

import argparse

from msgspec.structs import asdict

from kwire import __version__
from kwire.cli.cluster.info import NODE_PATH
from kwire.cli.connection.options import add_http_options, http_client_of
from kwire.cli.doctor.finding import PROBLEM
from kwire.cli.doctor.node_state import check_node
from kwire.cli.framework.output import add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.exit_codes import FAILED


def add(parser: CommandParser) -> None:
    add_http_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with http_client_of(options) as client:
        findings = [one for one in check_node(client.request("GET", NODE_PATH), __version__) if one.is_bad]
    is_healthy = not any(one.result == PROBLEM for one in findings)

    def show() -> None:
        print("healthy" if is_healthy else "not healthy")
        for one in findings:
            print(f"{one.result}: {one.text}; {one.remedy}")

    print_object({"is_healthy": is_healthy, "findings": [asdict(one) for one in findings]}, options, show)
    return 0 if is_healthy else FAILED

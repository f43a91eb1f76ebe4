"""kwire cluster info: the facts that a server reports about itself."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from kwire.cli.connection.options import add_http_options, http_client_of
from kwire.cli.framework.output import WIDE, add_output, print_object
from kwire.cli.framework.parser import CommandParser
from kwire.progress import duration_text, size_text

NODE_PATH = "/admin/node"


def add(parser: CommandParser) -> None:
    add_http_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with http_client_of(options) as client:
        node = client.request("GET", NODE_PATH)
    print_object(node, options, lambda: print("\n".join(lines_of(node, is_wide=options.output == WIDE))))
    return 0


def lines_of(node: Mapping[str, Any], *, is_wide: bool) -> Iterator[str]:
    rows = [
        ("cluster id", node["cluster_id"]),
        ("node", str(node["node_id"])),
        ("version", node["version"]),
        ("ready", "yes" if node["is_ready"] else "no"),
        ("uptime", duration_text((node["time_ms"] - node["started_ms"]) / 1000)),
        ("topics", f"{node['topics']:,} with {node['partitions']:,} partitions{_internal_text(node)}"),
        ("groups", f"{node['groups']:,}"),
        *(("listener", listener_text(one)) for one in node["listeners"]),
        *(("disk", disk_text(one)) for one in node["directories"]),
    ]
    if is_wide:
        descriptors = node["descriptors"]
        rows += [
            ("open logs", f"{node['open_logs']:,} of at most {descriptors['open_logs_max']:,}"),
            ("open files", f"at most {descriptors['limit']:,}"),
            *(("certificate", f"{one['listener']}, expires_ms {one['expires_ms']}") for one in node["certificates"]),
        ]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield f"{name:<{width}}  {text}"


def _internal_text(node: Mapping[str, Any]) -> str:
    # Earlier servers count internal topics with the others.
    return f", and {node['internal_topics']} internal" if node.get("internal_topics") else ""


def listener_text(one: Mapping[str, Any]) -> str:
    # A listener is often named after its protocol.
    names = dict.fromkeys((one["name"], one["security_protocol"]))
    text = f"{' '.join(names)} {one['host'] or '*'}:{one['port']}"
    if one["advertised_host"] is None:
        return text
    return f"{text}, advertised as {one['advertised_host']}:{one['advertised_port']}"


def disk_text(one: Mapping[str, Any]) -> str:
    if one["error"] is not None:
        return f"{one['path']} is offline: {one['error']}"
    return f"{one['path']}: {size_text(one['free_bytes'])} of {size_text(one['total_bytes'])} free"

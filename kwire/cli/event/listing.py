"""kwire event list: prints stored events of topics, one JSON object per line."""

import argparse
from typing import Any

from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.connection.subscriptions import positive_count
from kwire.cli.framework.output import print_line
from kwire.cli.framework.several_names import for_each
from kwire.cli.schema.topics import topic_path

PAGE_EVENTS = 1000


def add_list(verbs: Any) -> None:
    parser = add_http_verb(verbs, "list", "print stored events, one JSON object per line", list_events)
    parser.add_argument("names", metavar="TOPIC", nargs="+", help="topics of the event store")
    parser.add_argument("--since", metavar="EVENT_ID", help="only events after this one, such as orders-12")
    parser.add_argument("--before", metavar="EVENT_ID", help="only events before this one")
    parser.add_argument("--date", metavar="DATE", help="only events of this day in UTC, such as 2026-01-31")
    parser.add_argument("--type", metavar="TYPE", action="append", default=[], help="only this type; repeatable")
    parser.add_argument("--newest-first", action="store_true", help="print the newest event first")
    parser.add_argument(
        "--limit", metavar="N", type=positive_count, help="at most N events of each topic (default: all)"
    )


def list_events(client: HttpClient, options: argparse.Namespace) -> int:
    return for_each(options.names, lambda name: _print(client, name, options)).code


def _print(client: HttpClient, name: str, options: argparse.Namespace) -> None:
    left, since, before = options.limit, options.since, options.before
    while left is None or left > 0:
        # With --type, an unknown part of each page is printed.
        limit = PAGE_EVENTS if left is None or options.type else min(left, PAGE_EVENTS)
        page = client.request(
            "GET",
            topic_path(
                name,
                "events",
                sinceEventId=since,
                beforeEventId=before,
                date=options.date,
                limit=limit,
                order="backwards" if options.newest_first else "forwards",
            ),
        )
        for event in page["events"]:
            if options.type and event["type"] not in options.type:
                continue
            if left is not None and left <= 0:
                return
            left = None if left is None else left - 1
            print_line(event, options)
        if page["next"] is None:
            return
        since, before = (since, page["next"]) if options.newest_first else (page["next"], before)

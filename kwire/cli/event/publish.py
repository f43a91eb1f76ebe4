"""kwire event publish: publishes an event, or one for each line of the input."""

import argparse
import json
from typing import Any

from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import print_object
from kwire.cli.values.assignments import assignments_of
from kwire.cli.values.input_lines import line_batches

# The maximum number of input lines in one request.
EVENTS_PER_REQUEST = 500


def add_publish(verbs: Any) -> None:
    parser = add_http_verb(verbs, "publish", "publish an event, or one for each line of the input", publish)
    parser.add_argument(
        "name", metavar="TOPIC", help="a topic of the event store, such as `kwire schema register` makes"
    )
    parser.add_argument(
        "payload", metavar="PAYLOAD", nargs="?", help="the event's payload, as JSON (default: each line of the input)"
    )
    parser.add_argument("--type", metavar="TYPE", required=True, help="the event's type, which has a schema")
    parser.add_argument("--key", metavar="KEY", help="the key of the record, for Kafka clients")
    parser.add_argument(
        "--metadata", metavar="KEY=VALUE", action="append", default=[], help="metadata of the event; repeatable"
    )
    parser.add_argument("--event-id", metavar="ID", help="an id of your own: the same event is stored once")
    parser.add_argument(
        "--expected-version", metavar="N", type=int, help="refuse it unless the last event has this version; -1: none"
    )


def publish(client: HttpClient, options: argparse.Namespace) -> None:
    if options.payload is None and (options.event_id is not None or options.expected_version is not None):
        raise UsageError("--event-id and --expected-version are for one event: name its PAYLOAD")
    given = {
        "topic": options.name,
        "type": options.type,
        "key": options.key,
        "metadata": assignments_of(options.metadata, "--metadata") or None,
        "eventId": options.event_id,
        "expectedVersion": options.expected_version,
    }
    fields = json.dumps({name: value for name, value in given.items() if value is not None})[:-1]
    number = 0
    for texts in line_batches(EVENTS_PER_REQUEST) if options.payload is None else [[options.payload]]:
        bodies = []
        for text in texts:
            number += 1
            _check(text, f"line {number} of the input" if options.payload is None else "the payload")
            # The text is inserted unchanged, because decoding and encoding could alter its numbers.
            bodies.append(f'{fields}, "payload": {text}}}')
        _publish(client, bodies, options)


def _check(text: str, what: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from None


def _publish(client: HttpClient, bodies: list[str], options: argparse.Namespace) -> None:
    answer = client.request("POST", "/events", f"[{','.join(bodies)}]".encode())
    ids = answer["eventIds"]

    def print_text() -> None:
        print(f"published {ids[0] if len(ids) == 1 else f'{ids[0]} to {ids[-1]}'}", flush=True)

    print_object(answer, options, print_text)

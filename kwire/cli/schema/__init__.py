"""kwire schema: the schemas of event store topics of a running server, over its HTTP port.

Event types and optional properties can be added to the schemas of a topic. Nothing can be removed, so `delete` deletes
the whole topic.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from kwire.cli.connection.errors import Refused
from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import is_data, json_text, print_data, print_object, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each
from kwire.cli.schema.files import read_schemas
from kwire.cli.schema.topics import event_topics, topic_path
from kwire.cli.values.assignments import add_config, assignments_of

COLUMNS = ("topic", "type", "required", "optional")
WIDE_COLUMNS = ("events",)


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    list_ = add_http_verb(verbs, "list", "list event types and their properties", list_schemas)
    list_.add_argument("names", metavar="TOPIC", nargs="*", help="default: all topics of the event store")
    show = add_http_verb(verbs, "show", "print schemas as JSON", show_schemas)
    show.add_argument("names", metavar="TOPIC", nargs="+")
    show.add_argument("--type", metavar="TYPE", action="append", default=[], help="only this event type; repeatable")
    register = add_http_verb(
        verbs, "register", "create a topic of the event store with schemas, or add schemas to it", register_schemas
    )
    _add_topic_and_file(register)
    register.add_argument(
        "--all", action="store_true", help="the file has all schemas of the topic: refuse it if one is missing there"
    )
    add_config(register, "a setting of a new topic")
    check = add_http_verb(
        verbs, "check", "check whether a topic would accept schemas; nothing is changed", check_schemas
    )
    _add_topic_and_file(check)
    check.add_argument("--all", action="store_true", help="as for `register`")
    delete = add_http_verb(verbs, "delete", "delete topics of the event store: schemas and all events", delete_topics)
    delete.add_argument("names", metavar="TOPIC", nargs="+")
    add_yes(delete)


def _add_topic_and_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        required=True,
        help="JSON: a schema, an array of schemas, or the output of `show`; - is standard input",
    )


def list_schemas(client: HttpClient, options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    names = list(dict.fromkeys(options.names)) or event_topics(client)

    def collect(name: str) -> None:
        facts = client.request("GET", topic_path(name, "schemas"))
        rows.extend(_row(name, facts["sequence"], schema) for schema in facts["schemas"])

    outcomes = for_each(names, collect)
    print_rows(rows, COLUMNS, options, wide=WIDE_COLUMNS)
    return outcomes.code


def _row(topic: str, events: int, schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    required = [name for name in schema.get("required") or [] if isinstance(name, str)]
    return {
        "topic": topic,
        "type": event_type_of(schema),
        "required": required,
        "optional": [name for name in names if name not in required],
        "events": events,
    }


def event_type_of(schema: dict[str, Any]) -> str:
    """Return the event type of a schema: `eventType`, or otherwise `type`."""
    return str(schema.get("eventType") or schema.get("type"))


def show_schemas(client: HttpClient, options: argparse.Namespace) -> int:
    def show(name: str) -> None:
        facts = client.request("GET", topic_path(name, "schemas"))
        schemas = facts["schemas"]
        if options.type:
            schemas = [one for one in schemas if event_type_of(one) in options.type]
            missing = [one for one in options.type if one not in {event_type_of(schema) for schema in schemas}]
            if missing:
                raise ValueError(f"topic {name} has no event type {missing[0]}")
        value = {"name": name, "schemas": schemas}
        print_object(value, options, lambda: print(json_text(value, indent=2)))

    return for_each(options.names, show).code


def register_schemas(client: HttpClient, options: argparse.Namespace) -> None:
    schemas, configs = read_schemas(options.file), assignments_of(options.config)
    present = _present(client, options.name)
    if present is None:
        facts = client.request("POST", "/topics", {"name": options.name, "schemas": schemas, "configs": configs})
    elif configs:
        raise UsageError(f"topic {options.name} exists: change its settings with kwire topic alter, not with --config")
    else:
        method = "PUT" if options.all else "PATCH"
        facts = client.request(method, topic_path(options.name, "schemas"), {"schemas": schemas})
    types = [event_type_of(one) for one in facts["schemas"]]
    done = "created" if present is None else "registered"
    if is_data(options):
        print_data({done: options.name, "types": types}, options)
    else:
        print(printable(f"{done} {options.name}: {', '.join(types)}"))


def check_schemas(client: HttpClient, options: argparse.Namespace) -> None:
    # Imported here, because the rules take long to import. They are the same that the server applies.
    from kwire.streams.event_store.schemas.registration import validate_schemas

    schemas = read_schemas(options.file)
    present = _present(client, options.name)
    if present is not None and not options.all:
        given = {event_type_of(one) for one in schemas}
        schemas = [*(one for one in present if event_type_of(one) not in given), *schemas]
    result = validate_schemas(json.dumps(schemas).encode(), None if present is None else json.dumps(present).encode())
    if result.refusal is not None:
        raise ValueError(f"topic {options.name}: {result.refusal.error()}")
    new = [one for one in schemas if present is None or one not in present]
    facts = {"topic": options.name, "is_accepted": True, "changed": [event_type_of(one) for one in new]}

    def print_text() -> None:
        what = ", ".join(facts["changed"]) if new else "no change"
        print(printable(f"{options.name} would accept these schemas: {what}"))

    print_object(facts, options, print_text)


def delete_topics(client: HttpClient, options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    confirm(f"delete {counted_names('topic', names)} with schemas and all events", options)

    def delete(name: str) -> None:
        # It is refused for a topic that does not belong to the event store.
        client.request("GET", topic_path(name, "schemas"))
        client.request("DELETE", topic_path(name))

    return for_each(names, delete).finish("deleted", options)


def _present(client: HttpClient, name: str) -> list[dict[str, Any]] | None:
    """Return the schemas of a topic, None if there is no such topic."""
    try:
        schemas: list[dict[str, Any]] = client.request("GET", topic_path(name, "schemas"))["schemas"]
    except Refused as error:
        if "(TopicNotFound)" in str(error):
            return None
        raise
    return schemas

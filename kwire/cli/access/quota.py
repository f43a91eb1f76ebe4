"""kwire quota: list, set and delete quotas of users, client ids and addresses, over the Kafka port."""

import argparse
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from kwire.cli.connection.error_texts import check, refusal
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.cli.framework.several_names import Outcomes
from kwire.cli.values.assignments import add_config, assignments_of
from kwire.wire.messages.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kwire.wire.messages.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
KINDS = (USER, CLIENT_ID, IP)
EXACT, DEFAULT, ANY = range(3)
COLUMNS = ("entity", "name", "value")
HELP = (
    "user=NAME, client-id=NAME, ip=ADDRESS or user=NAME,client-id=NAME; without =NAME, the default of all: user, "
    "client-id, ip; user=NAME,client-id"
)
_ENTITY = re.compile(r"(?P<kind>user|client-id|ip)(?:=(?P<name>.+?))?(?P<client>,client-id(?:=(?P<client_name>.+))?)?")


class Entity(NamedTuple):
    """A user, a client id, an address, or a client id of a user. The name is None for the default of all."""

    parts: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return ",".join(kind if name is None else f"{kind}={name}" for kind, name in self.parts)


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    list_ = add_verb(verbs, "list", "list quotas, of everything or as selected", list_quotas)
    list_.add_argument("entities", metavar="ENTITY", nargs="*", help=HELP)
    set_ = add_verb(verbs, "set", "set quotas", set_quotas)
    set_.add_argument("entities", metavar="ENTITY", nargs="+", help=HELP)
    add_config(
        set_,
        "producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage, controller_mutation_rate, or "
        "connection_creation_rate (of addresses)",
        is_required=True,
    )
    delete = add_verb(verbs, "delete", "delete quotas", delete_quotas)
    delete.add_argument("entities", metavar="ENTITY", nargs="+", help=HELP)
    delete.add_argument(
        "--config", metavar="KEY", action="append", default=[], help="only this quota; repeatable (default: all)"
    )
    add_yes(delete)
    for one in (list_, set_, delete):
        add_kafka_options(one)
        add_output(one)


def parse_entity(text: str) -> Entity:
    """Return the entity that a text names. Raises UsageError."""
    match = _ENTITY.fullmatch(text)
    if match is None or (match["client"] is not None and match["kind"] != USER):
        raise UsageError(f"ENTITY is {HELP}; not {text!r}")
    parts = [(match["kind"], match["name"])]
    if match["client"] is not None:
        parts.append((CLIENT_ID, match["client_name"]))
    return Entity(tuple(parts))


def list_quotas(options: argparse.Namespace) -> None:
    entities = _entities(options)
    with kafka_client_of(options) as client:
        found = [pair for one in entities for pair in quotas_of(client, one)] if entities else list(quotas_of(client))
    _print(found, options)


def set_quotas(options: argparse.Namespace) -> int:
    values = {name: _number(name, text) for name, text in assignments_of(options.config).items()}
    entities = _entities(options)
    with kafka_client_of(options) as client:
        return _alter(client, {one: dict(values) for one in entities}).finish("altered", options)


def delete_quotas(options: argparse.Namespace) -> int:
    entities = _entities(options)
    outcomes = Outcomes()
    changes: dict[Entity, dict[str, float | None]] = {}
    with kafka_client_of(options) as client:
        confirm(f"delete quotas of {counted_names('entity', list(map(str, entities)))}", options)
        for entity in entities:
            present = [name for _, quotas in quotas_of(client, entity) for name in quotas]
            missing = [name for name in options.config or ["quota"] if name not in present]
            if missing and (options.config or not present):
                outcomes.fail(f"{entity} has no {missing[0]}")
            else:
                changes[entity] = dict.fromkeys(options.config or present)
        done = _alter(client, changes)
    done.failures += outcomes.failures
    return done.finish("deleted", options)


def quotas_of(client: KafkaClient, entity: Entity | None = None) -> Iterable[tuple[Entity, dict[str, float]]]:
    """Yield entities with their quotas, sorted: this one, or all. Raises Refused."""
    components = [] if entity is None else [_component(kind, name) for kind, name in entity.parts]
    request = DescribeClientQuotasRequest(components=components, strict=entity is not None)
    found = client.request(DESCRIBE_CLIENT_QUOTAS, request)
    check("the quotas", found.error_code, found.error_message)
    listed = []
    for entry in found.entries or []:
        names = {one.entity_type: one.entity_name for one in entry.entity}
        parts = tuple((kind, names[kind]) for kind in KINDS if kind in names)
        listed.append((Entity(parts), {one.key: one.value for one in sorted(entry.values, key=lambda one: one.key)}))
    return sorted(listed, key=lambda pair: str(pair[0]))


def _component(kind: str, name: str | None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)


def _alter(client: KafkaClient, changes: dict[Entity, dict[str, float | None]]) -> Outcomes:
    """Set quotas, or remove those whose value is None."""
    outcomes = Outcomes()
    if not changes:
        return outcomes
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        for entity, values in changes.items()
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    for result in client.controller().request(ALTER_CLIENT_QUOTAS, request).entries:
        names = {one.entity_type: one.entity_name for one in result.entity}
        entity = Entity(tuple((kind, names[kind]) for kind in KINDS if kind in names))
        if result.error_code:
            outcomes.fail(refusal(str(entity), result.error_code, result.error_message))
        else:
            outcomes.add(str(entity))
    return outcomes


def _entities(options: argparse.Namespace) -> list[Entity]:
    return list(dict.fromkeys(parse_entity(text) for text in options.entities))


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(f"{name} must be a positive number, got {text!r}")
    return number


def _print(found: Iterable[tuple[Entity, dict[str, float]]], options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = [
        {
            "entity": str(entity),
            "name": name,
            "value": int(value) if value.is_integer() else value,
            **{kind.replace("-", "_"): entity_name for kind, entity_name in entity.parts},
        }
        for entity, quotas in found
        for name, value in quotas.items()
    ]
    print_rows(rows, COLUMNS, options)

"""kwire topic: list, create, describe and delete topics of a running server, over its Kafka port."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import for_code

from kwire.cli.admin_client import add_admin_subcommand
from kwire.cli.subcommands import print_rows


def add(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    list_ = add_admin_subcommand(subcommands, "list", "list topics", list_topics)
    list_.add_argument("--internal", action="store_true", help="include internal topics")
    create_ = add_admin_subcommand(subcommands, "create", "create topics", create)
    create_.add_argument("names", metavar="TOPIC", nargs="+")
    create_.add_argument(
        "--partitions", type=int, default=-1, help="number of partitions (default: the server's num.partitions)"
    )
    create_.add_argument(
        "--config", metavar="KEY=VALUE", action="append", default=[], help="a topic setting; repeatable"
    )
    describe_ = add_admin_subcommand(subcommands, "describe", "show partitions, offsets and settings", describe)
    describe_.add_argument("names", metavar="TOPIC", nargs="+")
    delete_ = add_admin_subcommand(subcommands, "delete", "delete topics and their records", delete)
    delete_.add_argument("names", metavar="TOPIC", nargs="+")


def list_topics(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    topics = [topic for topic in admin.describe_topics() if options.internal or not topic["is_internal"]]
    rows = [{"topic": topic["name"], "partitions": len(topic["partitions"])} for topic in topics]
    print_rows(sorted(rows, key=lambda row: str(row["topic"])), ("topic", "partitions"), options)


def create(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    configs = {}
    for text in options.config:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--config takes KEY=VALUE, not {text!r}")
        configs[key] = value
    wanted = {name: {"num_partitions": options.partitions, "configs": configs} for name in options.names}
    _report(admin.create_topics(wanted, raise_errors=False)["topics"], "created", options)


def describe(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    found = {topic["name"]: topic for topic in admin.describe_topics(options.names)}
    for name in options.names:
        topic = found.get(name)
        if topic is None or topic["error_code"]:
            raise ValueError(f"topic {name} does not exist")
        _describe_one(admin, topic, options)


def delete(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    _report(admin.delete_topics(options.names, raise_errors=False)["topics"], "deleted", options)


def _describe_one(admin: KafkaAdminClient, topic: dict[str, Any], options: argparse.Namespace) -> None:
    from kafka import TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec

    partitions = [TopicPartition(topic["name"], one["partition_index"]) for one in topic["partitions"]]
    first = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    last = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    rows = [
        {
            "partition": one["partition_index"],
            "leader": one["leader_id"],
            "replicas": ",".join(map(str, one["replica_nodes"])),
            "first": first[partition].offset,
            "end": last[partition].offset,
        }
        for one, partition in zip(topic["partitions"], partitions, strict=True)
    ]
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic["name"])])
    # kafka-python omits settings with default values, so the result has only those set on the topic or on the server.
    settings = {name: setting["value"] for name, setting in described["topic"][topic["name"]].items()}
    if options.json:
        print(
            json.dumps({"topic": topic["name"], "id": str(topic["topic_id"]), "partitions": rows, "configs": settings})
        )
        return
    print(f"{topic['name']}  id {topic['topic_id']}")
    print_rows(sorted(rows, key=lambda row: int(row["partition"])), tuple(rows[0]), options)
    for name, value in settings.items():
        print(f"{name}={value}")


def _report(results: Sequence[dict[str, Any]], done: str, options: argparse.Namespace) -> None:
    """Print the topics without an error. If other topics failed, raise ValueError with their error messages."""
    failed = [result for result in results if result["error_code"]]
    names = [result["name"] for result in results if not result["error_code"]]
    if options.json:
        print(json.dumps({done: names}))
    else:
        for name in names:
            print(f"{done} {name}")
    if failed:
        raise ValueError("\n".join(_reason(result) for result in failed))


def _reason(result: dict[str, Any]) -> str:
    error = for_code(result["error_code"])
    return f"{result['name']}: {result['error_message'] or error.description or error.__name__}"

"""kwire group: list, describe and delete consumer groups of a running server, and set where they go on reading."""

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from kwire.cli.admin_client import admin_verb
from kwire.cli.consumer_members import consumer_members
from kwire.cli.verbs import print_rows
from kwire.wire.messages.consumer_group_describe import Member

OFFSET_COLUMNS = ("topic", "partition", "offset", "end", "lag", "metadata")
MEMBER_COLUMNS = ("member", "instance", "client", "host", "assignment")
RESET_COLUMNS = ("topic", "partition", "offset", "to")


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    listing = admin_verb(verbs, "list", "name every group", list_groups)
    listing.add_argument("--state", action="append", default=[], help="only groups in this state; repeatable")
    listing.add_argument("--type", action="append", default=[], help="only groups of this type; repeatable")
    describing = admin_verb(verbs, "describe", "show state, members, offsets and lag of groups", describe)
    describing.add_argument("names", metavar="GROUP", nargs="+")
    deleting = admin_verb(verbs, "delete", "delete groups without members, and their offsets", delete)
    deleting.add_argument("names", metavar="GROUP", nargs="+")
    resetting = admin_verb(verbs, "reset", "set where a group without members goes on reading", reset)
    resetting.add_argument("name", metavar="GROUP")
    resetting.add_argument(
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        action="append",
        default=[],
        help="which partitions; repeatable (default: all the group has committed)",
    )
    target = resetting.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", metavar="WHERE", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
    )
    target.add_argument("--by", metavar="N", type=int, help="so many records forward, or back if negative")
    resetting.add_argument("--dry-run", action="store_true", help="only say what would be done")


def list_groups(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    groups = admin.list_groups(states_filter=options.state or None, types_filter=options.type or None)
    rows = [
        {
            "group": group["group_id"],
            "state": group["group_state"],
            "type": group["group_type"],
            "protocol": group["protocol_type"],
        }
        for group in groups
    ]
    print_rows(sorted(rows, key=lambda row: str(row["group"])), ("group", "state", "type", "protocol"), options)


def describe(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    listed = {group["group_id"]: group for group in admin.list_groups()}
    missing = [name for name in options.names if name not in listed]
    if missing:
        raise ValueError("\n".join(f"there is no group {name}" for name in missing))
    described = admin.describe_groups(options.names)
    for name in options.names:
        _describe_one(admin, listed[name], described[name], options)


def delete(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    results = admin.delete_groups(options.names)
    deleted = [name for name, result in results.items() if result == "OK"]
    if options.json:
        print(json.dumps({"deleted": deleted}))
    else:
        for name in deleted:
            print(f"deleted {name}")
    if len(deleted) < len(results):
        raise ValueError("\n".join(f"{name}: {result}" for name, result in results.items() if result != "OK"))


def reset(admin: KafkaAdminClient, options: argparse.Namespace) -> None:
    committed = admin.list_group_offsets(options.name)[options.name]
    partitions = _chosen(admin, options.topic, committed)
    if not partitions:
        raise ValueError(f"{options.name} has committed nothing: name the topics with --topic")
    targets = _targets(admin, options, committed, partitions)
    if not options.dry_run:
        offsets = {partition: OffsetAndMetadata(offset, "", None) for partition, offset in targets.items()}
        results = admin.alter_group_offsets(options.name, offsets)
        failed = {partition: error for partition, error in results.items() if error is not NoError}
        if failed:
            reasons = (f"{one.topic}-{one.partition}: {error.__name__}" for one, error in failed.items())
            raise ValueError("\n".join((*reasons, "only a group without members can be reset")))
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": committed[one].offset if one in committed else None,
            "to": offset,
        }
        for one, offset in sorted(targets.items())
    ]
    print_rows(rows, RESET_COLUMNS, options)


# Describing


def _describe_one(
    admin: KafkaAdminClient, listed: Mapping[str, Any], described: Mapping[str, Any], options: argparse.Namespace
) -> None:
    name = listed["group_id"]
    offsets = _offset_rows(admin, name)
    if listed["group_type"] == "consumer":
        members = [_consumer_row(member) for member in consumer_members(_first(options.bootstrap_server), name)]
    else:
        members = [_member_row(member) for member in described["members"]]
    if options.json:
        facts = {"group": name, "state": listed["group_state"], "type": listed["group_type"]}
        print(json.dumps({**facts, "members": members, "offsets": offsets}))
        return
    print(f"{name}  {listed['group_state']}, {listed['group_type']}")
    if members:
        print_rows(members, MEMBER_COLUMNS, options)
    if offsets:
        print_rows(offsets, OFFSET_COLUMNS, options)


def _offset_rows(admin: KafkaAdminClient, name: str) -> list[dict[str, Any]]:
    committed = admin.list_group_offsets(name)[name]
    ends = _offsets_at(admin, committed, OffsetSpec.LATEST)
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": found.offset,
            "end": ends[one],
            "lag": max(0, ends[one] - found.offset),
            "metadata": found.metadata or None,
        }
        for one, found in sorted(committed.items())
    ]


def _member_row(member: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "member": member["member_id"],
        "instance": member.get("group_instance_id"),
        "client": member["client_id"],
        "host": member["client_host"],
        "assignment": _assignment(member["member_assignment"]),
    }


def _consumer_row(member: Member) -> dict[str, Any]:
    topics = {one.topic_name: one.partitions for one in member.assignment.topic_partitions}
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "assignment": _shown(topics),
    }


def _first(bootstrap: str) -> str:
    return bootstrap.split(",")[0].strip()


def _assignment(assigned: Any) -> str | None:
    """`topic:0,1,2`, for groups of consumers; what others assign is known to nobody but them."""
    if not isinstance(assigned, dict):
        return None
    return _shown({one["topic"]: one["partitions"] for one in assigned.get("assigned_partitions") or ()})


def _shown(topics: Mapping[str, Sequence[int]]) -> str | None:
    shown = (f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(topics.items()))
    return " ".join(shown) or None


# Resetting


def _chosen(
    admin: KafkaAdminClient, wanted: Sequence[str], committed: Mapping[TopicPartition, Any]
) -> list[TopicPartition]:
    if not wanted:
        return list(committed)
    chosen: dict[TopicPartition, None] = {}
    for text in wanted:
        topic, _, indexes = text.partition(":")
        described = admin.describe_topics([topic])
        if not described or described[0]["error_code"]:
            raise ValueError(f"there is no topic {topic}")
        known = {one["partition_index"] for one in described[0]["partitions"]}
        asked = {_whole_number(index) for index in indexes.split(",")} if indexes else known
        if not asked <= known:
            raise ValueError(f"{topic} has no partition {min(asked - known)}")
        chosen.update((TopicPartition(topic, index), None) for index in asked)
    return list(chosen)


def _targets(
    admin: KafkaAdminClient,
    options: argparse.Namespace,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where to go on, never outside of what there is to read."""
    first = _offsets_at(admin, partitions, OffsetSpec.EARLIEST)
    ends = _offsets_at(admin, partitions, OffsetSpec.LATEST)
    if options.by is not None:
        missing = [one for one in partitions if one not in committed]
        if missing:
            raise ValueError(
                f"nothing is committed for {missing[0].topic}-{missing[0].partition}: --by counts from there"
            )
        wanted = {one: committed[one].offset + options.by for one in partitions}
    elif options.to == "earliest":
        wanted = first
    elif options.to == "latest":
        wanted = ends
    elif options.to.isdigit():
        wanted = dict.fromkeys(partitions, int(options.to))
    else:
        found = _offsets_at(admin, partitions, _milliseconds(options.to))
        # No record that is as young: everything there is counts as read.
        wanted = {one: offset if offset >= 0 else ends[one] for one, offset in found.items()}
    return {one: min(max(offset, first[one]), ends[one]) for one, offset in wanted.items()}


def _offsets_at(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, Any], where: Any
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    found = admin.list_partition_offsets(dict.fromkeys(partitions, where))
    return {one: at.offset for one, at in found.items()}


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--to takes earliest, latest, an offset or a time, not {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _whole_number(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"a partition is a number, not {text!r}")
    return int(text)

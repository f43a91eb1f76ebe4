"""kwire group: list, describe and delete consumer groups of a running server, and reset their offsets."""

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from kwire.cli.admin_client import add_admin_subcommand
from kwire.cli.consumer_members import consumer_members
from kwire.cli.subcommands import print_rows
from kwire.wire.messages.consumer_group_describe import Member

OFFSET_COLUMNS = ("topic", "partition", "offset", "end", "lag", "metadata")
MEMBER_COLUMNS = ("member", "instance", "client", "host", "assignment")
RESET_COLUMNS = ("topic", "partition", "offset", "to")


def add(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    list_ = add_admin_subcommand(subcommands, "list", "list groups", list_groups)
    list_.add_argument("--state", action="append", default=[], help="only groups in this state; repeatable")
    list_.add_argument("--type", action="append", default=[], help="only groups of this type; repeatable")
    describe_ = add_admin_subcommand(
        subcommands, "describe", "show state, members, offsets and lag of groups", describe
    )
    describe_.add_argument("names", metavar="GROUP", nargs="+")
    delete_ = add_admin_subcommand(subcommands, "delete", "delete groups without members, with their offsets", delete)
    delete_.add_argument("names", metavar="GROUP", nargs="+")
    reset_ = add_admin_subcommand(subcommands, "reset", "reset the committed offsets of a group without members", reset)
    reset_.add_argument("name", metavar="GROUP")
    reset_.add_argument(
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        action="append",
        default=[],
        help="partitions to reset; repeatable (default: all with a committed offset)",
    )
    target = reset_.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", metavar="POSITION", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
    )
    target.add_argument("--by", metavar="N", type=int, help="move N records forward, or back if N is negative")
    reset_.add_argument("--dry-run", action="store_true", help="only print the new offsets")


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
        raise ValueError("\n".join(f"group {name} does not exist" for name in missing))
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
    partitions = _selected_partitions(admin, options.topic, committed)
    if not partitions:
        raise ValueError(f"group {options.name} has no committed offsets: name the topics with --topic")
    targets = _target_offsets(admin, options, committed, partitions)
    if not options.dry_run:
        offsets = {partition: OffsetAndMetadata(offset, "", None) for partition, offset in targets.items()}
        results = admin.alter_group_offsets(options.name, offsets)
        failed = {partition: error for partition, error in results.items() if error is not NoError}
        if failed:
            reasons = (f"{one.topic}-{one.partition}: {error.__name__}" for one, error in failed.items())
            raise ValueError(
                "\n".join((*reasons, "only a group without members can be reset: stop its consumers first"))
            )
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
        described_members = consumer_members(options.client_settings, name)
        members = [_consumer_row(member) for member in described_members]
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
        "assignment": _assignment_text(topics),
    }


def _assignment(assigned: Any) -> str | None:
    """Return an assignment as text, such as `topic:0,1,2`.

    Return None if the group's protocol type is not "consumer": the format of such assignments is unknown.
    """
    if not isinstance(assigned, dict):
        return None
    return _assignment_text({one["topic"]: one["partitions"] for one in assigned.get("assigned_partitions") or ()})


def _assignment_text(topics: Mapping[str, Sequence[int]]) -> str | None:
    shown = (f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(topics.items()))
    return " ".join(shown) or None


# Resetting


def _selected_partitions(
    admin: KafkaAdminClient, wanted: Sequence[str], committed: Mapping[TopicPartition, Any]
) -> list[TopicPartition]:
    if not wanted:
        return list(committed)
    chosen: dict[TopicPartition, None] = {}
    for text in wanted:
        topic, _, indexes = text.partition(":")
        described = admin.describe_topics([topic])
        if not described or described[0]["error_code"]:
            raise ValueError(f"topic {topic} does not exist")
        known = {one["partition_index"] for one in described[0]["partitions"]}
        asked = {_whole_number(index) for index in indexes.split(",")} if indexes else known
        if not asked <= known:
            raise ValueError(f"topic {topic} has no partition {min(asked - known)}")
        chosen.update((TopicPartition(topic, index), None) for index in asked)
    return list(chosen)


def _target_offsets(
    admin: KafkaAdminClient,
    options: argparse.Namespace,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, limited to the range from the first offset to the end offset."""
    first = _offsets_at(admin, partitions, OffsetSpec.EARLIEST)
    ends = _offsets_at(admin, partitions, OffsetSpec.LATEST)
    if options.by is not None:
        missing = [one for one in partitions if one not in committed]
        if missing:
            raise ValueError(
                f"--by needs a committed offset, but {missing[0].topic}-{missing[0].partition} has none: use --to"
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
        # The offset is -1 if no record has this or a later timestamp. Then the new offset is the end offset.
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
        raise ValueError(f"--to: expected earliest, latest, an offset or a time, got {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _whole_number(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"--topic: not a partition number: {text!r}")
    return int(text)

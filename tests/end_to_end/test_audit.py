"""The audit log of a real server: changes by Kafka clients, a chain that survives kills, and `kwire log verify`."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kwire.streams.audit.chain import previous_hash
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from tests.support.cli import run_here
from tests.support.clients import produce_values, read_topic
from tests.support.server import KwireProcess, wait_until

WAIT_S = 20.0


def audited(server: KwireProcess) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for records in read_topic(server.bootstrap, "kwire-audit").values():
        for record in records:
            headers = dict(record.headers)
            found.append((headers["ce_type"].decode(), json.loads(record.value)))
    return found


def until_audited(server: KwireProcess, *expected: tuple[str, str]) -> list[tuple[str, dict[str, Any]]]:
    def whole() -> list[tuple[str, dict[str, Any]]] | None:
        found = audited(server)
        named = {(what, fields["resource"]["name"]) for what, fields in found}
        return found if named >= set(expected) else None

    return wait_until(whole, f"the audit log has {expected}") or []


@pytest.fixture
def server(tmp_path: Path) -> Any:
    process = KwireProcess(tmp_path, settings={"kwire.audit": "all"})
    process.start()
    process.ready()
    yield process
    if process.is_running:
        process.kill()


def create(admin: AdminClient, *names: str) -> None:
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(WAIT_S)


def test_changes_by_kafka_clients_are_recorded_with_who_and_what(server: KwireProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    create(admin, "orders", "doomed")
    admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(WAIT_S)
    entry = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
    for kind, name in ((ResourceType.TOPIC, "orders"), (ResourceType.BROKER, "1")):
        setting = (
            entry
            if kind is ResourceType.TOPIC
            else ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
        )
        resource = ConfigResource(kind, name, incremental_configs=[setting])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)
    admin.delete_topics(["doomed"])["doomed"].result(WAIT_S)
    produce_values(server.bootstrap, "orders", [b"x"] * 5)
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    # As kafka-consumer-groups --reset-offsets: a commit by a client that is not a member.
    for offset in range(5):
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()
    admin.delete_consumer_groups(["readers"])["readers"].result(WAIT_S)
    admin.delete_records([TopicPartition("orders", 0, 2)])
    found = until_audited(
        server,
        ("topic.created", "orders"),
        ("topic.extended", "orders"),
        ("topic.configured", "orders"),
        ("config.changed", "1"),
        ("topic.deleted", "doomed"),
        ("group.offsets_set", "readers"),
        ("group.deleted", "readers"),
        ("topic.records_deleted", "orders"),
    )
    for what, fields in found:
        if fields["resource"]["name"] in ("orders", "doomed", "readers", "1"):
            assert (fields["principal"], fields["host"], fields["port"], fields["outcome"]) == (
                "User:ANONYMOUS",
                "127.0.0.1",
                "kafka",
                "success",
            ), (what, fields)
    by_type = {what: fields for what, fields in found if fields["resource"]["name"] != "kwire-audit"}
    assert by_type["topic.configured"]["set"] == ["retention.ms"]
    assert by_type["config.changed"]["set"] == ["log.cleaner.threads"]
    assert "1234567" not in str(found)
    # Five commits, one entry: the others are counted.
    assert [what for what, _ in found].count("group.offsets_set") == 1


def verify(server: KwireProcess, code: int) -> tuple[dict[str, Any], str]:
    plain = run_here("log", "verify", server.data_dir, "--json", "--no-progress")
    shown = run_here("log", "verify", server.data_dir, "--no-progress")
    assert (plain.code, shown.code) == (code, code), plain.out + plain.errors
    return json.loads(plain.out), shown.out


def test_the_chain_is_whole_after_kills_and_verify_names_the_first_broken_offset(server: KwireProcess) -> None:
    for life in range(3):
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        create(admin, f"before-{life}")
        until_audited(server, ("topic.created", f"before-{life}"))
        # These may be lost with the process, or not.
        create(admin, *(f"late-{life}-{number}" for number in range(20)))
        server.kill()
        server.restart()
    create(AdminClient({"bootstrap.servers": server.bootstrap}), "last")
    until_audited(server, ("topic.created", "last"))
    assert server.stop() == 0
    report, shown = verify(server, 0)
    (chain,) = report["audit_chains"]
    assert chain["breaks"] == 0
    assert chain["records"] >= 4
    assert chain["head"] in shown
    assert "the hash chain is whole" in shown

    (path,) = (server.data_dir / "kwire-audit-0").glob("*.log")
    data = path.read_bytes()
    # A byte is changed, and nothing else: the batch is damaged, and the chain breaks after it.
    position = data.index(b"before-1")
    path.write_bytes(data[:position] + b"B" + data[position + 1 :])
    report, shown = verify(server, 1)
    assert report["audit_chains"][0]["first_break"] is not None
    assert "damaged bytes" in shown

    # An attacker repairs the checksums, too.
    records, base = _records(data)
    at = next(number for number, record in enumerate(records) if b'"before-1"' in (record.value or b""))
    changed = records[at]._replace(value=(records[at].value or b"").replace(b"before-1", b"before-9"))
    for tampered, broken in (
        ([*records[:at], changed, *records[at + 1 :]], records[at + 1].offset),
        ([*records[:at], *records[at + 1 :]], records[at].offset),
        ([*records[:at], records[at + 1], records[at], *records[at + 2 :]], records[at].offset),
    ):
        path.write_bytes(b"".join(bytes(build_batch([one], base_offset=base + at)) for at, one in enumerate(tampered)))
        report, shown = verify(server, 1)
        assert report["audit_chains"][0]["first_break"] == broken
        assert f"offset {broken}: hash chain: " in shown
        assert f"first breaks at offset {broken}" in shown


def _records(data: bytes) -> tuple[list[Record], int]:
    found: list[Record] = []
    position = 0
    while position + 61 <= len(data) and (size := parse_header(data, position).size_bytes) > 61:
        found += read_records(data[position : position + size], 2**20)
        position += size
    assert all(previous_hash(record) for record in found)
    return found, found[0].offset

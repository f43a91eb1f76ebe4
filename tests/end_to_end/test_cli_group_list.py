"""kwire group list: the total lag of every group, also of a thousand, with few requests."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.connection.settings import ClientSettings
from kwire.cli.group.offsets import commit_offsets
from kwire.cli.group.total_lag import GROUPS_PER_REQUEST
from kwire.wire.schema import Api
from tests.support.access_commands import json_of, succeeded
from tests.support.cli import run_here
from tests.support.http_json import ask
from tests.support.server import KwireProcess

GROUPS = 1_000
PARTITIONS = 3
RECORDS = 30


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    server = KwireProcess(tmp_path_factory.mktemp("groups"))
    server.restart()
    yield server
    server.kill()


def commit(process: KwireProcess, topic: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Commit the offsets of a topic's partitions, for each of these groups."""
    with KafkaClient(ClientSettings(process.bootstrap, "PLAINTEXT", "PLAIN", None, None)) as client:
        for group, of_group in offsets.items():
            refused = commit_offsets(client, group, {TopicPartition(topic, one): at for one, at in of_group.items()})
            assert refused == {}


def produce(process: KwireProcess, folder: Path, topic: str, count: int) -> None:
    lines = folder / "lines.txt"
    lines.write_text("record\n" * count)
    succeeded(run_here("topic", "produce", topic, "--file", lines, "--bootstrap-server", process.bootstrap))


def lag_of(process: KwireProcess, group: str) -> Any:
    listed = json_of("group", "list", "--bootstrap-server", process.bootstrap)
    return next(one["lag"] for one in listed if one["group"] == group)


def counted_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests that commands send from now on, by API."""
    sent: Counter[str] = Counter()
    exchange = KafkaConnection._exchange

    def counting(connection: KafkaConnection, api: Api, *given: Any) -> Any:
        sent[api.name] += 1
        return exchange(connection, api, *given)

    monkeypatch.setattr(KafkaConnection, "_exchange", counting)
    return sent


def test_a_thousand_groups_are_listed_with_their_lag_by_few_requests(
    process: KwireProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = ("--bootstrap-server", process.bootstrap)
    succeeded(run_here("topic", "create", "orders", "--partitions", PARTITIONS, *kafka))
    produce(process, tmp_path, "orders", RECORDS)
    ends = {row["partition"]: row["end"] for row in json_of("topic", "describe", "orders", *kafka)["partitions"]}
    assert sum(ends.values()) == RECORDS
    # Group number N has read N records of partition 0, at most all of them, and nothing of the others.
    read = {f"group-{number:04}": number % (ends[0] + 1) for number in range(GROUPS)}
    commit(process, "orders", {group: {0: offset, 1: 0, 2: 0} for group, offset in read.items()})
    expected = {group: RECORDS - offset for group, offset in read.items()}
    sent = counted_requests(monkeypatch)

    listed = json_of("group", "list", *kafka)

    assert {one["group"]: one["lag"] for one in listed if one["group"] in expected} == expected
    assert sent["OffsetFetch"] == -(-len(listed) // GROUPS_PER_REQUEST)
    assert sent["ListOffsets"] == 1
    assert sum(sent.values()) <= sent["OffsetFetch"] + 8, sent
    described = json_of("group", "describe", "group-0001", *kafka)
    assert sum(row["lag"] for row in described["offsets"]) == expected["group-0001"]
    in_the_console = ask(f"{process.http_url}/api/v1/groups/group-0001").body
    assert in_the_console["lag_offsets"] == expected["group-0001"]


def test_a_partition_that_was_deleted_does_not_count(process: KwireProcess, tmp_path: Path) -> None:
    kafka = ("--bootstrap-server", process.bootstrap)
    for topic in ("kept", "deleted"):
        succeeded(run_here("topic", "create", topic, *kafka))
        produce(process, tmp_path, topic, 10)
        commit(process, topic, {"survivor": {0: 3}})
    assert lag_of(process, "survivor") == 14
    succeeded(run_here("topic", "delete", "deleted", "--yes", *kafka))
    assert lag_of(process, "survivor") == 7


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_every_format_has_the_lag(process: KwireProcess, output: str) -> None:
    succeeded(run_here("topic", "create", f"formats-{output}", "--bootstrap-server", process.bootstrap))
    commit(process, f"formats-{output}", {"formats": {0: 0}})
    out = succeeded(run_here("group", "list", "-o", output, "--bootstrap-server", process.bootstrap))
    if output == "json":
        assert all(isinstance(one["lag"], int) for one in json.loads(out))
    elif output == "yaml":
        assert "  lag: " in out
    else:
        assert out.split("\n")[0].split() == ["group", "state", "type", "protocol", "lag"]

"""There is one Produce path: nothing else in the Kafka protocol appends records, waits for them or answers for them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = "kwire/handlers/produce/append.py"

# Everything that appends to a partition or to its log. A line here is another writer, not another way for producers.
WRITERS = {
    PATH: "batches of Kafka producers",
    "kwire/broker/partition/partition.py": "the partition, to its log",
    "kwire/coordinator/internal_topic_log.py": "state of groups and transactions",
    "kwire/coordinator/runtime.py": "the same, to its coordinator log",
    "kwire/streams/event_store/commit_pipeline.py": "the journal of the event store",
    "kwire/streams/events/publishing.py": "events of rooms and topics over HTTP",
    "kwire/streams/audit/writer.py": "the audit log",
    "kwire/streams/webhooks/state_log.py": "state of webhooks",
    "kwire/streams/local_webhooks.py": "the same, to the partition",
    "kwire/streams/local.py": "events of a stream, to its appends",
    "kwire/streams/local_appends.py": "the same, to the partition",
    "kwire/streams/remote/log.py": "events of a stream, to the producer that sends them to another server",
    "kwire/streams/remote_webhooks/definition_store.py": "webhooks of a bridge, to their topic",
    "kwire/streams/remote_webhooks/state_topic.py": "state of webhooks of a bridge, to the same topic",
    "kwire/web/proxy/produce.py": "records over REST",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "kwire").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("kwire/pipeline/", "kwire/client/")):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def appends_records(tree: ast.AST) -> bool:
    """Whether a module calls an `append` that takes a batch and its header: those of collections take one argument."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and (len(node.args) + len(node.keywords) > 1 or any(isinstance(one, ast.Starred) for one in node.args))
        for node in ast.walk(tree)
    )


def makes(tree: ast.AST, name: str) -> bool:
    """Whether a module calls something of this name."""
    return any(
        isinstance(node, ast.Call)
        and name == (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None))
        for node in ast.walk(tree)
    )


def imports(tree: ast.AST, module: str) -> bool:
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == module)
        or (isinstance(node, ast.Import) and any(one.name == module for one in node.names))
        for node in ast.walk(tree)
    )


def test_only_named_writers_append_records() -> None:
    assert {name for name, tree in sources() if appends_records(tree)} == set(WRITERS)


def test_the_answer_for_a_partition_is_made_in_one_place() -> None:
    assert [name for name, tree in sources() if makes(tree, "PartitionProduceResponse")] == [PATH]


def test_only_the_package_of_produce_reads_its_messages() -> None:
    users = {name for name, tree in sources() if imports(tree, "kwire.wire.messages.produce")}
    clients = (
        "kwire/cli/",
        "kwire/streams/remote",
        "kwire/testing/",
    )  # they send Produce requests, or refuse them in tests
    assert {name for name in users if not name.startswith(("kwire/handlers/produce/", *clients))} == {
        "kwire/handlers/__init__.py",  # the list of handlers
        "kwire/wire/apis.py",  # the list of APIs
    }


def test_of_handlers_and_connections_only_one_file_waits_for_records() -> None:
    waiting = [name for name, tree in sources() if makes(tree, "on_reached")]
    assert [name for name in waiting if name.startswith(("kwire/handlers/", "kwire/server/"))] == [PATH]


@pytest.mark.parametrize(
    "source",
    [
        "partition.append(batch, header)",
        "self.topic.partitions[0].append(*checked(batch))",
        "log.append(batch, header=header, leader_epoch=0, now_ms=0)",
    ],
)
def test_a_second_path_would_be_found(source: str) -> None:
    assert appends_records(ast.parse(source))
    assert not appends_records(ast.parse("names.append(header)"))

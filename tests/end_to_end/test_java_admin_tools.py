"""Apache Kafka's tools for administrators, unchanged, and what each of them says of a cluster of one node.

`test_java_tools.py` has the tools for topics and records.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Topics, produce_values, read_topic, unique_name
from tests.support.java import JavaTools
from tests.support.server import Broker, KwireProcess, wait_until

# The first run fetches the tools with Maven. One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
]

CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
NOT_A_BROKER = 4711


def written(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def facts(text: str) -> dict[str, str]:
    """`Name:   value` lines as a dictionary."""
    return dict(re.findall(r"^(\w+): +(.*?) *$", text, re.MULTILINE))


def test_cluster_tool_knows_the_cluster_and_its_broker(broker: Broker, java: JavaTools) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    assert re.fullmatch(r"Cluster ID: \S+\n", java.run("ClusterTool", "cluster-id", *server))
    header, *rows = java.run("ClusterTool", "list-endpoints", "--include-fenced-brokers", *server).splitlines()
    assert header.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    ((number, host, port, *_, state, kind),) = (row.split() for row in rows)
    assert (host, int(port)) == broker.address
    assert (state, kind) == ("unfenced", "broker")
    said = java.refused("ClusterTool", "unregister", "--id", str(NOT_A_BROKER), *server)
    assert "BrokerIdNotRegisteredException" in said
    assert int(number) != NOT_A_BROKER


def test_the_only_broker_cannot_be_unregistered(kwire: KwireProcess, topics: Topics, java: JavaTools) -> None:
    server = ("--bootstrap-server", kwire.bootstrap)
    said = java.refused("ClusterTool", "unregister", "--id", "1", *server)
    assert "InvalidRequestException" in said
    assert "only one" in said
    # It goes on.
    topic = topics.create("still-there")
    produce_values(kwire.bootstrap, topic, [b"a"])
    assert len(read_topic(kwire.bootstrap, topic)[0]) == 1


def test_features_are_described_and_cannot_be_lowered(broker: Broker, java: JavaTools) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    described = java.run("FeatureCommand", *server, "describe")
    levels = {
        match["name"]: match["level"]
        for match in re.finditer(
            r"Feature: (?P<name>\S+)\s+SupportedMinVersion: .*?FinalizedVersionLevel: (?P<level>.*?)\s+Epoch: \d+",
            described,
        )
    }
    # A tool older than the level has no name for it.
    level = re.search(r"\d+(\.\d+)?", levels["metadata.version"])
    assert level is not None
    said = java.refused("FeatureCommand", *server, "downgrade", "--feature", "metadata.version=7")
    assert "Could not downgrade metadata.version to 7" in said
    assert "1 out of 1 operation(s) failed." in said


def test_feature_that_is_at_its_level_can_be_set_to_it(kwire: KwireProcess, java: JavaTools) -> None:
    feature = ("--feature", "metadata.version=33")
    done = java.run("FeatureCommand", "--bootstrap-server", kwire.bootstrap, "upgrade", *feature)
    assert done == "metadata.version was upgraded to 33.\n"
    server = ("--bootstrap-server", kwire.bootstrap)
    said = java.refused("FeatureCommand", *server, "upgrade", "--feature", "no.such=1", "--dry-run")
    assert "Can not upgrade no.such to 1" in said


def test_metadata_quorum_is_this_node(broker: Broker, topics: Topics, java: JavaTools) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    status = facts(java.run("MetadataQuorumCommand", *server, "describe", "--status"))
    assert status["ClusterId"]
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == ("0", "0")
    assert (int(status["LeaderEpoch"]) >= 0, status["CurrentObservers"]) == (True, "[]")
    (voter,) = json.loads(status["CurrentVoters"])
    assert str(voter["id"]) == status["LeaderId"]
    assert re.fullmatch(r"[\w-]{22}", voter["directoryId"])
    assert len(voter["endpoints"]) == 1
    topics.create("a-commit-more")
    header, row, *rest = java.run(
        "MetadataQuorumCommand", *server, "describe", "--replication", "--human-readable"
    ).splitlines()
    assert header.split()[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert rest == []
    node_id, directory_id, end, lag, *_, role = row.split()
    assert (node_id, directory_id, lag, role) == (status["LeaderId"], voter["directoryId"], "0", "Leader")
    assert int(end) > int(status["HighWatermark"])


def test_leaders_are_elected_already(broker: Broker, topics: Topics, java: JavaTools, tmp_path: Path) -> None:
    topic = topics.create("java-election", partitions=2)
    partitions = {"partitions": [{"topic": topic, "partition": index} for index in (0, 1)]}
    server = ("--bootstrap-server", broker.bootstrap)
    for kind in ("preferred", "unclean"):
        named = ("--path-to-json-file", written(tmp_path / "partitions.json", partitions))
        said = java.run("LeaderElectionCommand", *server, "--election-type", kind, *named)
        assert said.startswith("Valid replica already elected for partitions ")
        assert set(said.split()[-2:]) <= {f"{topic}-{index}{comma}" for index in (0, 1) for comma in ("", ",")}
    # There is nothing to say of partitions that need none when all are asked for.
    assert java.run("LeaderElectionCommand", *server, "--election-type", "preferred", "--all-topic-partitions") == ""
    said = java.refused(
        "LeaderElectionCommand", *server, "--election-type", "preferred", "--topic", topic, "--partition", "2"
    )
    assert f"partition: {topic}-2: " in said
    assert "UnknownTopicOrPartitionException" in said


def test_records_are_deleted(broker: Broker, topics: Topics, java: JavaTools, tmp_path: Path) -> None:
    topic = topics.create("java-delete-records", partitions=2)
    produce_values(broker.bootstrap, topic, [b"a", b"b", b"c"], partition=0)
    produce_values(broker.bootstrap, topic, [b"d", b"e"], partition=1)
    asked = [{"topic": topic, "partition": 0, "offset": 2}, {"topic": topic, "partition": 1, "offset": -1}]
    said = java.run(
        "DeleteRecordsCommand", "--bootstrap-server", broker.bootstrap,
        "--offset-json-file", written(tmp_path / "offsets.json", {"partitions": asked, "version": 1}),
    )  # fmt: skip
    for index in (0, 1):
        assert f"partition: {topic}-{index}\tlow_watermark: 2" in said
    earliest = java.run(
        "GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", "earliest"
    )
    assert earliest.splitlines() == [f"{topic}:0:2", f"{topic}:1:2"]


# --- what needs several directories, or settings nobody else should meet, has a server of its own


@pytest.fixture
def two_dirs(start_kwire: Callable[..., KwireProcess], tmp_path: Path) -> tuple[KwireProcess, list[Path]]:
    dirs = [tmp_path / "first", tmp_path / "second"]
    process = start_kwire(settings={"log.dirs": ",".join(map(str, dirs))}, names_data_dir=False)
    return process, dirs


def log_dirs(java: JavaTools, server: str, topic: str) -> dict[str, list[str]]:
    """The topic's partitions in each directory, as kafka-log-dirs tells them."""
    said = java.run("LogDirsCommand", "--bootstrap-server", server, "--describe", "--topic-list", topic)
    (described,) = json.loads(said.splitlines()[-1])["brokers"]
    for directory in described["logDirs"]:
        assert directory["error"] is None
    return {
        one["logDir"]: [part["partition"] for part in one["partitions"] if not part["isFuture"]]
        for one in described["logDirs"]
    }


def test_partitions_move_between_the_directories_of_the_node(
    two_dirs: tuple[KwireProcess, list[Path]], java: JavaTools, tmp_path: Path
) -> None:
    process, dirs = two_dirs
    made = Topics(process.bootstrap)
    topic = made.create("java-moves")
    made.close()
    values = [str(number).encode() for number in range(100)]
    produce_values(process.bootstrap, topic, values)
    before = log_dirs(java, process.bootstrap, topic)
    assert sorted(before) == sorted(map(str, dirs))
    (here,) = (name for name, partitions in before.items() if partitions == [f"{topic}-0"])
    (there,) = (name for name in before if name != here)

    tool = (REASSIGN, "--bootstrap-server", process.bootstrap)
    wanted = written(tmp_path / "topics.json", {"topics": [{"topic": topic}], "version": 1})
    generated = java.run(*tool, "--topics-to-move-json-file", wanted, "--broker-list", "1", "--generate")
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    (now,) = current["partitions"]
    assert (now["replicas"], now["log_dirs"]) == ([1], [here])
    (plan,) = proposed["partitions"]
    assert plan["replicas"] == [1]

    plan["log_dirs"] = [there]
    plan_file = ("--reassignment-json-file", written(tmp_path / "plan.json", proposed))
    executed = java.run(*tool, *plan_file, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in executed
    assert f"Successfully started moving log directory to {there} for replica {topic}-0 with broker 1" in executed

    def verified() -> str:
        said = java.run(*tool, *plan_file, "--verify")
        return said if "completed successfully" in said else ""

    said = wait_until(verified, "the replica is in the other directory", timeout_s=60)
    assert f"Reassignment of partition {topic}-0 is completed." in said
    assert "Clearing broker-level throttles on broker 1" in said
    assert log_dirs(java, process.bootstrap, topic)[there] == [f"{topic}-0"]
    assert [record.value for record in read_topic(process.bootstrap, topic)[0]] == values
    assert java.run(*tool, "--list").strip() == "No partition reassignments found."


def test_a_plan_that_needs_another_broker_is_refused(
    kwire: KwireProcess, topics: Topics, java: JavaTools, tmp_path: Path
) -> None:
    topic = topics.create("java-reassign")
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2]}]}
    plan_file = ("--reassignment-json-file", written(tmp_path / "plan.json", plan))
    tool = (REASSIGN, "--bootstrap-server", kwire.bootstrap)
    assert "Unknown broker id 2" in java.refused(*tool, *plan_file, "--execute")
    said = java.run(*tool, *plan_file, "--cancel", "--preserve-throttles")
    assert "None of the specified partition reassignments are active." in said


def test_configs_of_brokers_groups_and_client_metrics_are_altered_and_stay(
    start_kwire: Callable[..., KwireProcess], java: JavaTools
) -> None:
    process = start_kwire()
    broker = ("brokers", "--entity-name", "1")
    group = ("groups", "--entity-name", unique_name("group"))
    configs = {
        broker: "log.cleaner.backoff.ms=14000",
        ("brokers", "--entity-default"): "log.retention.ms=7200000",
        ("client-metrics", "--entity-name", unique_name("subscription")): "interval.ms=20000",
        group: "consumer.session.timeout.ms=50000",
    }

    def tool(entity: tuple[str, ...]) -> list[str]:
        return [CONFIGS, "--bootstrap-server", process.bootstrap, "--entity-type", *entity]

    for entity, config in configs.items():
        assert "Completed updating" in java.run(*tool(entity), "--alter", "--add-config", config)
    assert process.stop() == 0
    process.restart()
    for entity, config in configs.items():
        # Without --all the tool lists the groups first.
        everything = ("--all",) if entity is group else ()
        assert f"{config} sensitive=false" in java.run(*tool(entity), "--describe", *everything)
    # What cannot change while the server runs.
    assert "node.id" in java.refused(*tool(broker), "--alter", "--add-config", "node.id=2")

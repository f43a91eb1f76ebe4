"""Apache Kafka's own tools: the Java producer, consumer and admin client."""

import re

import pytest

from tests.support.clients import Topics, produce_values, read_topic, unique_name
from tests.support.java import JavaTools
from tests.support.server import Broker
from tests.support.tool_server import ToolServer

# The first run fetches the tools with Maven. One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
]

PERF_RECORDS = 20_000
HANGING_CALL_TIMEOUT_S = 1.0


def test_topics_are_created_listed_described_grown_and_deleted(broker: Broker, java: JavaTools) -> None:
    name = unique_name("java-topics")
    server = ("--bootstrap-server", broker.bootstrap)
    made = java.run(
        "TopicCommand", *server, "--create", "--topic", name, "--partitions", "2", "--replication-factor", "1",
        "--config", "retention.ms=3600000",
    )  # fmt: skip
    assert f"Created topic {name}" in made
    assert name in java.run("TopicCommand", *server, "--list").splitlines()
    described = java.run("TopicCommand", *server, "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\s+TopicId: [\w-]{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1\s+"
        r"Configs: .*retention.ms=3600000",
        described,
    )
    assert re.search(r"Partition: 1\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)
    java.run("TopicCommand", *server, "--alter", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in java.run("TopicCommand", *server, "--describe", "--topic", name)
    java.run("TopicCommand", *server, "--delete", "--topic", name)
    assert name not in java.run("TopicCommand", *server, "--list").splitlines()


def test_the_console_producer_and_consumer_agree(broker: Broker, topics: Topics, java: JavaTools) -> None:
    """Each in a JVM of its own, with real pipes, as a user starts them."""
    topic = topics.create("java-console")
    lines = [f"key-{number}\tvalue {number}" for number in range(50)]
    java.run_alone(
        "ConsoleProducer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--compression-codec", "zstd",
        "--reader-property", "parse.key=true", stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    read = java.run_alone(
        "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning",
        "--max-messages", "50", "--timeout-ms", "20000",
        "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true",
    )  # fmt: skip
    assert read.splitlines() == [f"Offset:{number}\t{line}" for number, line in enumerate(lines)]
    assert [record.value for record in read_topic(broker.bootstrap, topic)[0]] == [
        line.split("\t")[1].encode() for line in lines
    ]


def test_a_console_group_resumes_where_it_stopped(broker: Broker, topics: Topics, java: JavaTools) -> None:
    topic = topics.create("java-group")
    group = unique_name("java-group")
    lines = "".join(f"{number}\n" for number in range(10))
    java.run("ConsoleProducer", "--bootstrap-server", broker.bootstrap, "--topic", topic, stdin=lines)
    first = ("--max-messages", "4", "--command-property", "max.poll.records=4")
    rest = ("--max-messages", "6")
    read = [
        java.run(
            "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group,
            "--from-beginning", "--timeout-ms", "20000", *part,
        ).split()
        for part in (first, rest)
    ]  # fmt: skip
    assert read == [["0", "1", "2", "3"], ["4", "5", "6", "7", "8", "9"]]


def test_get_offsets_tells_both_ends_and_the_largest_time(broker: Broker, topics: Topics, java: JavaTools) -> None:
    topic = topics.create("java-offsets", partitions=2)
    produce_values(broker.bootstrap, topic, [b"a", b"b", b"c"], partition=1)

    def offsets(time: str) -> list[str]:
        return java.run(
            "GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", time
        ).splitlines()

    assert offsets("latest") == [f"{topic}:0:0", f"{topic}:1:3"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    # A partition without records has no largest time and is left out.
    (largest,) = offsets("max-timestamp")
    assert largest.startswith(f"{topic}:1:")


def test_performance_tools_run_to_their_end(broker: Broker, topics: Topics, java: JavaTools) -> None:
    topic = topics.create("java-perf", partitions=3)
    produced = java.run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(PERF_RECORDS), "--record-size", "200",
        "--throughput", "-1", "--bootstrap-server", broker.bootstrap,
        "--command-property", "acks=all", "compression.type=lz4",
    )  # fmt: skip
    assert f"{PERF_RECORDS} records sent" in produced
    consumed = java.run(
        "ConsumerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--num-records", str(PERF_RECORDS), "--hide-header",
    )  # fmt: skip
    # start time, end time, megabytes, megabytes per second, records, …
    assert int(consumed.splitlines()[-1].split(",")[4]) == PERF_RECORDS
    assert sum(len(records) for records in read_topic(broker.bootstrap, topic).values()) == PERF_RECORDS


def test_end_to_end_latency_runs_to_its_end(broker: Broker, topics: Topics, java: JavaTools) -> None:
    topic = topics.create("java-latency")
    output = java.run(
        "EndToEndLatency", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", "500",
        "--producer-acks", "all", "--record-size", "100",
    )  # fmt: skip
    assert re.search(r"Avg latency: \d+\.\d+ ms", output)
    assert len(read_topic(broker.bootstrap, topic)[0]) == 500


def test_every_version_the_java_client_needs_is_usable(broker: Broker, java: JavaTools) -> None:
    output = java.run("BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap)
    assert broker.bootstrap in output.splitlines()[0]
    usable = {
        match["name"]: (int(match["low"]), int(match["high"]))
        for match in re.finditer(r"(?P<name>\w+)\(\d+\): (?P<low>\d+) to (?P<high>\d+) \[usable: \d+\]", output)
    }
    assert usable["Produce"][0] == 0, "librdkafka switches features off unless Produce is advertised from 0"
    for name in (
        "Fetch",
        "ListOffsets",
        "Metadata",
        "JoinGroup",
        "OffsetCommit",
        "OffsetFetch",
        "InitProducerId",
        "CreateTopics",
    ):
        assert name in usable, output
    assert "UNSUPPORTED" not in "".join(
        line for line in output.splitlines() if re.search(r"\b(Produce|Fetch|Metadata)\(", line)
    )


def test_topic_configs_are_altered_and_described(broker: Broker, topics: Topics, java: JavaTools) -> None:
    topic = topics.create("java-configs")
    entity = ("--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", topic)
    tool = "kafka.admin.ConfigCommand"
    java.run(tool, *entity, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    described = java.run(tool, *entity, "--describe")
    assert "retention.ms=7200000" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG" in described
    java.run(tool, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=7200000" not in java.run(tool, *entity, "--describe")
    everything = java.run(tool, *entity, "--describe", "--all")
    assert "retention.ms=604800000" in everything
    assert "segment.bytes=1073741824" in everything


def test_a_call_that_hangs_fails_and_the_next_one_has_a_new_jvm(broker: Broker, topics: Topics) -> None:
    server = ToolServer()
    topic = topics.create("java-hangs")
    described = ("TopicCommand", "--bootstrap-server", broker.bootstrap, "--describe", "--topic", topic)
    endless = ("consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--topic", topic)
    try:
        before = server.run(*described)
        with pytest.raises(AssertionError, match="no answer within"):
            server.call(*endless, timeout_s=HANGING_CALL_TIMEOUT_S)
        assert server.run(*described) == before
    finally:
        server.close()

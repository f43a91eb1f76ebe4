"""kcat: librdkafka 2.0 from the command line."""

import json
import subprocess

import pytest

from tests.support.clients import CODECS, Topics, read_topic, unique_name
from tests.support.server import Broker

pytestmark = pytest.mark.needs_kcat

KCAT_TIMEOUT_S = 60.0


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=KCAT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"kcat {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_lines_produced_are_lines_consumed(broker: Broker, topics: Topics, codec: str) -> None:
    topic = topics.create(f"kcat-{codec}")
    lines = "".join(f"line {number} {'x' * 100}\n" for number in range(500))
    kcat(broker, "-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true", stdin=lines)
    assert kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q") == lines


def test_json_output_shows_every_part_of_a_message(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kcat-json", partitions=2)
    kcat(broker, "-P", "-t", topic, "-p", "1", "-K", ":", "-H", "colour=blue", stdin="key:value\n")
    kcat(broker, "-P", "-t", topic, "-p", "1", "-K", ":", "-Z", stdin="gone:\n")
    first, second = [json.loads(line) for line in kcat(broker, "-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    assert (first["partition"], first["offset"], first["key"], first["payload"]) == (1, 0, "key", "value")
    assert first["headers"] == ["colour", "blue"]
    assert first["tstype"] == "create"
    assert (second["offset"], second["key"], second["payload"]) == (1, "gone", None)
    records = read_topic(broker.bootstrap, topic)[1]
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        (b"key", b"value", first["ts"]),
        (b"gone", None, second["ts"]),
    ]


def test_metadata_lists_the_broker_and_the_topic(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kcat-metadata", partitions=3)
    everything = kcat(broker, "-L")
    assert f"at {broker.bootstrap}" in everything
    assert f'topic "{topic}" with 3 partitions' in everything
    found = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [(node["name"]) for node in found["brokers"]] == [broker.bootstrap]
    assert [partition["partition"] for partition in found["topics"][0]["partitions"]] == [0, 1, 2]


def test_offsets_are_found_by_timestamp_and_at_the_ends(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kcat-query")
    kcat(broker, "-P", "-t", topic, stdin="a\nb\nc\n")
    second_ms = read_topic(broker.bootstrap, topic)[0][0].timestamp
    assert kcat(broker, "-Q", "-t", f"{topic}:0:{second_ms}").split() == [topic, "[0]", "offset", "0"]
    assert kcat(broker, "-C", "-t", topic, "-o", "-1", "-e", "-q") == "c\n"
    assert kcat(broker, "-C", "-t", topic, "-o", "1", "-c", "1", "-q") == "b\n"


def test_a_group_consumer_reads_to_the_end_and_resumes(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kcat-group")
    group = unique_name("kcat-group")
    read = ["-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic]
    kcat(broker, "-P", "-t", topic, stdin="one\ntwo\n")
    assert kcat(broker, *read) == "one\ntwo\n"
    kcat(broker, "-P", "-t", topic, stdin="three\n")
    assert kcat(broker, *read) == "three\n"

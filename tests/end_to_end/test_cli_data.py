"""kwire topic produce, consume, export, import and kwire bench: the installed program with pipes and in a terminal."""

import base64
import json
import random
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from kwire.cli.bench import TOPIC_PREFIX
from kwire.cli.records.files import FORMATS
from tests.support.cli import interruptible
from tests.support.cli_data import TIMEOUT_S, output, run_data, run_data_here, terminal
from tests.support.clients import Topics, produce_values, read_topic, read_values, unique_name
from tests.support.effort import repetitions
from tests.support.server import Broker, kwire_command, wait_until


def test_lines_are_produced_and_consumed(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-lines")
    lines = b"".join(b"line %d %s\n" % (number, b"x" * (number % 300)) for number in range(20_000))
    done = run_data(broker.bootstrap, "topic", "produce", topic, stdin=lines)
    assert (done.code, done.out, done.errors) == (0, b"", f"kwire: 20,000 records written to {topic}\n")
    done = run_data(broker.bootstrap, "topic", "consume", topic, "--until", "end")
    assert (done.code, done.out, done.errors) == (0, lines, "")
    assert read_values(broker.bootstrap, topic) == lines.splitlines()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_what_was_compressed(broker: Broker, topics: Topics, codec: str) -> None:
    topic = topics.create(f"cli-{codec}")
    lines = [b"line %d" % number for number in range(1000)]
    output(broker.bootstrap, "topic", "produce", topic, "-z", codec, stdin=b"\n".join(lines))
    assert read_values(broker.bootstrap, topic) == lines
    printed = output(broker.bootstrap, "topic", "consume", topic, "--until", "end", "--count", "3")
    assert printed == b"line 0\nline 1\nline 2\n"


def test_keys_headers_timestamps_and_nulls(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-keys", partitions=3)
    written = output(
        broker.bootstrap,
        *("topic", "produce", topic, "--key-delimiter", r"\t", "--null", "NULL", "-H", "colour=blue"),
        *("--timestamp", "2026-11-01T00:00:00Z", "-o", "json"),
        stdin=b"a\t1\nb\tNULL\na\t\n",
    )
    told = json.loads(written)
    assert (told["topic"], told["records"]) == (topic, 3)
    found = read_topic(broker.bootstrap, topic)
    records = [record for index in found for record in found[index]]
    assert sorted((record.key, record.value) for record in records if record.value is not None) == [
        (b"a", b""),
        (b"a", b"1"),
    ]
    assert {record.timestamp for record in records} == {1793491200000}
    assert {tuple(record.headers) for record in records} == {(("colour", b"blue"),)}
    for row in told["partitions"]:
        assert row["records"] == len(found[row["partition"]]) == row["last_offset"] + 1
    # kafka-python chooses the same partitions.
    sent = topics.create("cli-keys-twin", partitions=3)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key in (b"a", b"b"):
        producer.send(sent, key=key, value=b"x").get(TIMEOUT_S)
    producer.close()
    twin = read_topic(broker.bootstrap, sent)
    for index, group in twin.items():
        assert {record.key for record in group} == {record.key for record in found[index]}


def test_positions_counts_and_partitions(broker: Broker, topics: Topics) -> None:
    topic, other = topics.create("cli-from", partitions=2), topics.create("cli-other")
    for index in range(2):
        produce_values(broker.bootstrap, topic, [b"%d-%d" % (index, one) for one in range(5)], partition=index)
    produce_values(broker.bootstrap, other, [b"other"])

    def consumed(*arguments: str) -> list[bytes]:
        return sorted(output(broker.bootstrap, "topic", "consume", *arguments).splitlines())

    until = ("--until", "end")
    assert consumed(topic, *until, "--from", "3") == [b"0-3", b"0-4", b"1-3", b"1-4"]
    assert consumed(topic, *until, "--from", "-1") == [b"0-4", b"1-4"]
    assert consumed(topic, "--until", "1") == [b"0-0", b"1-0"]
    assert consumed(topic, "--until", "-4", "-p", "1") == [b"1-0"]
    assert consumed(topic, *until, "--from", "latest") == []
    assert consumed(topic, *until, "--from", "1h", "-p", "0", "--count", "2") == [b"0-0", b"0-1"]
    assert consumed(topic, "--until", "1h") == []
    assert consumed(topic, *until, "--tail", "1")[0][1:] == b"-4"
    assert consumed(topic, other, *until, "--from", "4") == [b"0-4", b"1-4"]
    assert consumed(topic, other, *until, "--from", "-1") == [b"0-4", b"1-4", b"other"]


def test_an_offset_after_the_end_waits_for_its_record(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-later")
    produce_values(broker.bootstrap, topic, [b"0", b"1"])
    with consuming(broker, topic, "--from", "3", "--count", "1") as process:
        produce_values(broker.bootstrap, topic, [b"2", b"3", b"4"])
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, b"3\n")


def test_json_lines_are_consumed_and_produced_again(broker: Broker, topics: Topics) -> None:
    topic, copy = topics.create("cli-json"), topics.create("cli-json-copy")
    lines = (
        b'{"key":"k","value":"v","headers":[{"key":"a","value":"1"},{"key":"a","value":null}],"timestamp":1793491200000}\n'
        b'{"key":null,"value":null,"headers":[],"timestamp":1793491200001}\n'
        b'{"key_base64":"/w==","value":{"n":1},"timestamp":1793491200002}\n'
    )
    output(broker.bootstrap, "topic", "produce", topic, "--format", "jsonl", stdin=lines)
    printed = output(broker.bootstrap, "topic", "consume", topic, "--until", "end", "-o", "json")
    first, second, third = [json.loads(line) for line in printed.splitlines()]
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 1793491200000,
        "key": "k",
        "value": "v",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}],
    }
    assert (second["key"], second["value"]) == (None, None)
    assert (third["key_base64"], third["value"]) == ("/w==", '{"n":1}')
    output(broker.bootstrap, "topic", "produce", copy, "--format", "jsonl", stdin=printed)
    again = output(broker.bootstrap, "topic", "consume", copy, "--until", "end", "-o", "json")
    assert again.replace(copy.encode(), topic.encode()) == printed
    yaml = output(broker.bootstrap, "topic", "consume", topic, "--until", "end", "-o", "yaml")
    assert yaml.count(b"---\n") == 3
    wide = output(broker.bootstrap, "topic", "consume", topic, "--count", "1", "-o", "wide")
    assert wide == f"{topic}-0@0  2026-11-01T00:00:00.000Z  k: v  {{a=1,a=NULL}}\n".encode()


@pytest.mark.needs_kcat
def test_format_strings_print_what_kcat_prints(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-kcat", partitions=1)
    output(
        broker.bootstrap,
        *("topic", "produce", topic, "--format", "jsonl"),
        stdin=b'{"key":"k","value":"v\\u0000w","headers":{"a":"1","b":null}}\n{"value":null}\n{"key":"","value":""}\n',
    )
    text = r"%t [%p] %o %T key %k %K value %s %S %R headers %h 100%% \x41\n\t"
    theirs = subprocess.run(
        ["kcat", "-b", broker.bootstrap, "-C", "-t", topic, "-e", "-q", "-f", text],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    ).stdout
    assert output(broker.bootstrap, "topic", "consume", topic, "--until", "end", "-f", text) == theirs


def test_records_of_aborted_transactions_are_left_out(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-committed")
    produce_values(broker.bootstrap, topic, [b"plain"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique_name("cli-transaction")})
    producer.init_transactions(TIMEOUT_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    arguments = ("topic", "consume", topic, "--until", "end")
    assert output(broker.bootstrap, *arguments) == b"plain\naborted\ncommitted\n"

    def committed() -> bytes:
        return output(broker.bootstrap, *arguments, "--read-committed")

    # A commit is answered before its marker is in the log.
    wait_until(lambda: committed().endswith(b"committed\n"), "the marker of the second transaction")
    assert committed() == b"plain\ncommitted\n"


def test_a_group_goes_on_where_it_ended(broker: Broker, topics: Topics) -> None:
    topic, group = topics.create("cli-group"), unique_name("cli-group")
    produce_values(broker.bootstrap, topic, [b"0", b"1", b"2", b"3"])
    arguments = ("topic", "consume", topic, "--group", group)
    assert output(broker.bootstrap, *arguments, "--count", "3") == b"0\n1\n2\n"
    assert output(broker.bootstrap, *arguments, "--until", "end") == b"3\n"
    assert output(broker.bootstrap, *arguments, "--until", "end") == b""


def test_a_group_commits_the_partitions_that_it_has_not_read_yet(broker: Broker, topics: Topics) -> None:
    topic, group = topics.create("cli-unread", partitions=2), unique_name("cli-unread")
    for partition in (0, 1):
        output(broker.bootstrap, "topic", "produce", topic, "-p", str(partition), stdin=b"a\nb\n")
    output(broker.bootstrap, "topic", "consume", topic, "--group", group, "--count", "1")
    described = json.loads(output(broker.bootstrap, "group", "describe", group, "-o", "json"))
    assert sorted(one["lag"] for one in described["offsets"]) == [1, 2]


# Export and import


@pytest.mark.parametrize("name", FORMATS)
def test_an_import_of_an_export_is_the_same_topic(broker: Broker, topics: Topics, tmp_path: Path, name: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    contents = [None, b"", b"text", "§ 5".encode(), b"\xff\xfe", b'"', b"a,b\r\nc", b"\0", b"null"]
    topic, copy = topics.create("cli-export", partitions=3), topics.create("cli-import", partitions=3)
    lines = []
    for _ in range(repetitions(quick=300, full=2000)):
        headers = [{"key": rng.choice("aä"), **as_json("value", rng.choice(contents))} for _ in range(rng.randrange(3))]
        record = {"headers": headers, "partition": rng.randrange(3), "timestamp": 1793491200000 + rng.randrange(10**6)}
        record |= as_json("key", rng.choice(contents)) | as_json("value", rng.choice(contents))
        lines.append(json.dumps(record).encode())
    output(broker.bootstrap, "topic", "produce", topic, "--format", "jsonl", stdin=b"\n".join(lines))
    file = tmp_path / f"records.{name}"
    done = run_data_here(broker.bootstrap, "topic", "export", topic, "--file", file)
    assert (done.code, done.errors) == (0, f"kwire: {len(lines)} records of {topic} written to {file}\n")
    output(broker.bootstrap, "topic", "import", copy, "--file", file, "-z", "lz4")

    def content(found: str) -> dict[int, list[object]]:
        return {
            index: [(one.key, one.value, tuple(one.headers), one.timestamp) for one in records]
            for index, records in read_topic(broker.bootstrap, found).items()
        }

    assert content(copy) == content(topic)
    assert sum(map(len, content(topic).values())) == len(lines)
    refused = run_data_here(broker.bootstrap, "topic", "export", topic, "--file", file)
    assert refused.code == 1
    assert "--overwrite" in refused.errors


def as_json(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        assert content is not None
        return {f"{name}_base64": base64.b64encode(content).decode()}


def test_an_import_into_fewer_partitions_needs_to_be_asked_for(broker: Broker, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("cli-narrow")
    file = tmp_path / "records.csv"
    file.write_text("partition,key,value\n0,a,1\n4,b,2\n")
    refused = run_data_here(broker.bootstrap, "topic", "import", topic, "--file", file)
    assert refused.code == 1
    assert f"{file}: record 2 is of partition 4, and {topic} has only 1" in refused.errors
    assert f"1 record before it written to {topic}" in refused.errors
    output(broker.bootstrap, "topic", "import", topic, "--file", file, "--repartition")
    assert read_values(broker.bootstrap, topic) == [b"1", b"1", b"2"]


# Bad input


@pytest.fixture(scope="module")
def bad_input_topic(topics: Topics) -> str:
    return topics.create("cli-bad")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "text"),
    [
        (("produce", "{topic}", "--format", "jsonl"), b'{"value":"a"}\n{"value":', 1, "line 2: "),
        (("produce", "{topic}", "--key-delimiter", ":"), b"a:1\nb\n", 1, "line 2 has no key"),
        (("produce", "{topic}", "--file", "/nowhere/x"), b"", 1, "/nowhere/x: No such file"),
        (("produce", "{topic}", "-p", "9"), b"a\n", 1, "has no partition 9"),
        (("produce", "{topic}", "-H", "x"), b"a\n", 2, "--header takes NAME=VALUE"),
        (("produce", "{topic}", "--batch-size", "1"), b"a\n", 2, "--batch-size"),
        (("produce", "{topic}", "--timestamp", "soon"), b"a\n", 2, "--timestamp"),
        (("produce", "no/slash"), b"a\n", 1, "no/slash"),
        (("consume", "{topic}", "--from", "soon"), b"", 2, "--from: expected earliest"),
        (("consume", "{topic}", "-f", "%x"), b"", 2, "%x is not a field"),
        (("consume", "{topic}", "-p", "9"), b"", 1, "has no partition 9"),
        (("consume", "{topic}", "{topic}-missing"), b"", 1, "-missing does not exist"),
        (("consume", "{topic}", "--tail", "3", "--group", "g"), b"", 2, "--tail cannot be combined"),
        (("export", "{topic}", "--file", "x.txt"), b"", 2, "--format"),
        (("import", "{topic}", "--file", "/nowhere/x.csv"), b"", 1, "No such file"),
    ],
)
def test_bad_input_is_described(
    broker: Broker, bad_input_topic: str, arguments: tuple[str, ...], stdin: bytes, code: int, text: str
) -> None:
    done = run_data_here(
        broker.bootstrap, "topic", *(one.format(topic=bad_input_topic) for one in arguments), stdin=stdin
    )
    assert (done.code, done.out) == (code, b"")
    assert done.errors.startswith("kwire: ")
    assert text in done.errors
    assert "Traceback" not in done.errors


def test_a_batch_that_is_too_large_is_explained(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-large", configs={"max.message.bytes": "2000"})
    done = run_data_here(broker.bootstrap, "topic", "produce", topic, stdin=b"x" * 3000)
    assert done.code == 1
    assert "max.message.bytes" in done.errors
    assert output(broker.bootstrap, "topic", "produce", topic, "--batch-size", "1500", stdin=b"x\n" * 1000) == b""


# Waiting


def consuming(broker: Broker, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [str(kwire_command()), "topic", "consume", *arguments, "--bootstrap-server", broker.bootstrap]
    with interruptible():
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("extra", [(), ("--group", "{group}")], ids=["alone", "group"])
def test_consume_ends_when_its_reader_is_gone(broker: Broker, topics: Topics, extra: tuple[str, ...]) -> None:
    topic = topics.create("cli-head")
    produce_values(broker.bootstrap, topic, [b"only"])
    with consuming(broker, topic, *(one.format(group=unique_name("cli-head")) for one in extra)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"only\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGPIPE
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_ctrl_c_ends_a_consumer_whose_group_keeps_what_was_printed(broker: Broker, topics: Topics) -> None:
    topic, group = topics.create("cli-interrupt"), unique_name("cli-interrupt")
    produce_values(broker.bootstrap, topic, [b"0", b"1"])
    with consuming(broker, topic, "--group", group) as process:
        assert process.stdout is not None
        assert process.stdout.readline() + process.stdout.readline() == b"0\n1\n"
        produce_values(broker.bootstrap, topic, [b"2"])
        assert process.stdout.readline() == b"2\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (130, b"")
    produce_values(broker.bootstrap, topic, [b"3"])
    rest = output(broker.bootstrap, "topic", "consume", topic, "--group", group, "--until", "end")
    # What was printed last may be printed again, if Ctrl-C came before it was counted as printed.
    assert rest in (b"3\n", b"2\n3\n")


def test_lines_that_are_typed_are_sent_at_once(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-typed")
    with terminal(broker.bootstrap, "topic", "produce", topic) as shown:
        shown.type(b"first\n")
        assert output(broker.bootstrap, "topic", "consume", topic, "--count", "1") == b"first\n"
        shown.type(b"second\n\x04")
        assert shown.finish() == 0
    assert b"2 records written" in shown.screen
    assert read_values(broker.bootstrap, topic) == [b"first", b"second"]


def test_a_terminal_shows_records_and_ctrl_c_ends(broker: Broker, topics: Topics) -> None:
    topic = topics.create("cli-terminal")
    produce_values(broker.bootstrap, topic, [b"0", b"1"])
    with terminal(broker.bootstrap, "topic", "consume", topic, "--tail", "1") as shown:
        shown.read_until(b"1\r\n")
        produce_values(broker.bootstrap, topic, [b"2"])
        shown.read_until(b"2\r\n")
        shown.type(b"\x03")
        assert shown.finish() == 130
    assert b"0\r\n" not in shown.screen


def test_an_export_shows_its_progress_in_a_terminal_only(broker: Broker, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("cli-progress")
    produce_values(broker.bootstrap, topic, [b"0", b"1"])
    with terminal(broker.bootstrap, "topic", "export", topic, "--file", tmp_path / "a.jsonl") as shown:
        assert shown.finish() == 0
    assert f"export {topic} [".encode() in shown.screen
    done = run_data_here(broker.bootstrap, "topic", "export", topic)
    assert done.errors == f"kwire: 2 records of {topic} written to standard output\n"
    assert len(done.out.splitlines()) == 2


# The benchmark


def test_bench_measures_and_deletes_its_own_topic_only(broker: Broker, topics: Topics) -> None:
    kept = topics.create(TOPIC_PREFIX + "kept")
    done = run_data_here(
        broker.bootstrap, *("bench", "--records", "2000", "--latency-records", "20", "--seconds", "20", "-o", "json")
    )
    assert (done.code, done.errors) == (0, "")
    found = json.loads(done.out)
    assert found["produce"]["records"] == found["consume"]["records"] == 2000
    assert found["produce"]["records_per_s"] > 0
    times = found["end_to_end_ms"]
    assert times["records"] == 20
    assert 0 < times["p50"] <= times["p99"] <= times["max"]
    names = output(broker.bootstrap, "topic", "list").decode().split()
    assert [name for name in names if name.startswith(TOPIC_PREFIX)] == [kept]
    table = output(broker.bootstrap, "bench", "--records", "100", "--latency-records", "0").decode()
    assert table.splitlines()[0].split() == ["work", "records", "seconds", "records_per_s", "mb_per_s"]
    assert run_data_here(broker.bootstrap, "bench", "--records", "0").code == 2

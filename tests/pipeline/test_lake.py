"""kwire pipeline lake with a real server and real Spark: tables hold what the log holds, each event once."""

import fcntl
import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from kwire.pipeline.columns import METADATA_NAMES, Column, ColumnClash, TableNameClash, columns_of
from kwire.pipeline.lake.dead_letters import BadRecord
from kwire.pipeline.lake.files import Files
from kwire.pipeline.lake.locks import commit_lock, writer_lock
from kwire.pipeline.lake.locks.commit_lock import hold_commit_lock
from kwire.pipeline.lake.locks.writer_lock import TableInUse, sole_writer
from kwire.pipeline.lake.parquet import ParquetTable
from kwire.pipeline.lake.tables import BatchMark, Partitioning, open_lake
from kwire.pipeline.lake.topic_writer import CheckpointBehind, ModeChanged, TableBehind
from kwire.pipeline.server import Server
from kwire.pipeline.topic_facts import ServerUnreachable, TopicFactsReader, TopicMissing
from tests.support.clients import DEADLINE_S, Topics, produce_values, read_topic, unique_name
from tests.support.effort import repetitions
from tests.support.http_json import ask
from tests.support.lake import LakeUnderTest, log_of
from tests.support.server import KwireProcess
from tests.support.spark import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FORMATS = ("iceberg", "parquet")


@pytest.fixture
def lake(spark: "SparkSession", kwire: KwireProcess) -> LakeUnderTest:
    """The session's own catalog is the warehouse of all tests of this module; each has topics of its own."""
    return LakeUnderTest(spark, kwire, warehouse_of(spark))


@pytest.fixture(params=FORMATS)
def either(request: pytest.FixtureRequest, spark: "SparkSession", kwire: KwireProcess) -> LakeUnderTest:
    """The same in both formats."""
    return LakeUnderTest(spark, kwire, warehouse_of(spark), request.param)


def event_topic(kwire: KwireProcess, stem: str, **properties: Any) -> str:
    name = unique_name(stem).replace("-", "_")
    schema = {"eventType": "made", "type": "object", "properties": properties}
    assert ask(f"{kwire.http_url}/topics", "POST", {"name": name, "schemas": [schema]}).status == 201
    return name


def grow(kwire: KwireProcess, topic: str, **properties: Any) -> None:
    schema = {"eventType": "made", "type": "object", "properties": properties}
    answer = ask(f"{kwire.http_url}/topics/{topic}/schemas", "PATCH", {"schemas": [schema]})
    assert answer.status == 200, answer.body


def publish(kwire: KwireProcess, topic: str, *payloads: Any) -> list[str]:
    events = [{"topic": topic, "type": "made", "payload": payload} for payload in payloads]
    answer = ask(f"{kwire.http_url}/events", "POST", events)
    assert answer.status == 201, answer.body
    ids: list[str] = answer.body["eventIds"]
    return ids


def produce_pairs(bootstrap: str, topic: str, *pairs: tuple[bytes, bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    sent = [producer.send(topic, key=key, value=value) for key, value in pairs]
    for one in sent:
        one.get(timeout=DEADLINE_S)
    producer.close(timeout=DEADLINE_S)


def payloads(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in METADATA_NAMES} for row in rows]


def table_of(topic: str) -> str:
    return topic.replace("-", "_").replace(".", "_")


def forget_last_batch(lake: LakeUnderTest, topic: str) -> None:
    """As if the driver had died after the table's commit, before Spark noted the batch as done."""
    commits = Path(lake.warehouse) / "_checkpoints" / table_of(topic) / "commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_table_has_the_columns_of_its_topics_schemas(kwire: KwireProcess, either: LakeUnderTest) -> None:
    topic = event_topic(
        kwire,
        "typed",
        name={"type": ["string", "null"]},
        age={"type": "integer"},
        score={"type": "number"},
        is_new={"type": "boolean"},
        tags={"type": "array", "items": {"type": "string"}},
        place={"type": "object", "properties": {"lat": {"type": "number"}, "names": {"type": "array", "items": {}}}},
        free={},
        **{"odd name.`x`": {"type": "integer"}},
    )
    first = {
        "name": "Zoë",
        "age": 2**53 + 1,
        "score": 1.5,
        "is_new": True,
        "tags": ["a", "b"],
        "place": {"lat": 59.9, "names": ["Oslo", 1]},
        "free": {"a": [1, None]},
        "odd name.`x`": 5,
    }
    ids = publish(kwire, topic, first, {}, {"name": None, "free": "text", "undeclared": 1})
    either.run_once(topic)
    rows = either.rows(topic)
    assert list(rows[0]) == [*first, *METADATA_NAMES]
    nothing = dict.fromkeys(first)
    assert payloads(rows) == [
        {**first, "place": {"lat": 59.9, "names": '["Oslo",1]'}, "free": '{"a":[1,null]}'},
        nothing,
        {**nothing, "free": "text"},
    ]
    assert [row["event_id"] for row in rows] == ids == [f"{topic}-1", f"{topic}-2", f"{topic}-3"]
    assert {row["event_type"] for row in rows} == {"made"}
    assert [row["kafka_offset"] for row in rows] == [0, 1, 2]


def test_a_table_without_schemas_equals_the_log(topics: Topics, either: LakeUnderTest) -> None:
    topic = topics.create("plain.log", partitions=3)
    producer = KafkaProducer(bootstrap_servers=either.kwire.bootstrap)
    for number in range(90):
        headers = [("ce_id", b"id-%d" % number), ("ce_type", b""), ("x", b"\xff"), ("ce_type", b"seen")]
        producer.send(
            topic,
            key=b"\x00key-%d" % number if number % 4 else None,
            value=f"row ☃ {number}".encode() if number % 7 or number % 4 == 0 else None,
            headers=headers if number % 2 else [],
            partition=number % 3,
        )
    producer.close(timeout=DEADLINE_S)
    either.run_once(topic, more=("--batch-records", "40"))
    assert either.log_rows(table_of(topic)) == log_of(either.kwire.bootstrap, topic)
    rows = either.rows(table_of(topic))
    assert list(rows[0]) == ["value", *METADATA_NAMES]
    said = {(row["event_id"], row["event_type"]) for row in rows if row["kafka_headers"]}
    assert said == {(f"id-{number}", "seen") for number in range(1, 90, 2)}
    made = {(row["event_id"], row["event_type"]) for row in rows if not row["kafka_headers"]}
    assert made == {(f"evt_{row['kafka_offset']}", "message") for row in rows if not row["kafka_headers"]}


def test_a_batch_that_is_repeated_changes_nothing(topics: Topics, either: LakeUnderTest) -> None:
    topic = topics.create("again")
    produce_values(either.kwire.bootstrap, topic, [b"good", b"\xff bad", b"good too"])
    either.run_once(topic)
    before = either.rows(table_of(topic)), either.rows(table_of(topic) + "_dead_letters")
    assert [len(rows) for rows in before] == [2, 1]
    forget_last_batch(either, topic)
    either.run_once(topic)
    assert (either.rows(table_of(topic)), either.rows(table_of(topic) + "_dead_letters")) == before
    older = Path(either.warehouse) / "_checkpoints" / table_of(topic)
    shutil.copytree(older, older.with_name("older"))
    produce_values(either.kwire.bootstrap, topic, [b"more"])
    either.run_once(topic)
    assert [row["value"] for row in either.rows(table_of(topic))] == ["good", "good too", "more"]
    # An older checkpoint gives the number of that batch to one that ends elsewhere.
    shutil.rmtree(older)
    older.with_name("older").rename(older)
    produce_values(either.kwire.bootstrap, topic, [b"and more"])
    with pytest.raises(CheckpointBehind, match="its batch 1 has other end offsets"):
        either.run_once(topic)
    shutil.rmtree(older)
    either.run_once(topic)
    assert [row["value"] for row in either.rows(table_of(topic))] == ["good", "good too", "more", "and more"]


def test_a_table_grows_with_the_schemas_and_rewrites_nothing(kwire: KwireProcess, either: LakeUnderTest) -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
    topic = event_topic(kwire, "growing", a={"type": "integer"}, deep=inner, many={"type": "array", "items": inner})
    publish(kwire, topic, {"a": 1, "deep": {"x": 1}, "many": [{"x": 1}]})
    either.run_once(topic)
    files = data_files(either, topic)
    wider = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}
    grow(kwire, topic, a={"type": "integer"}, deep=wider, b={"type": "boolean"}, many={"type": "array", "items": wider})
    publish(kwire, topic, {"a": 2, "deep": {"x": 2, "y": "two"}, "b": True, "many": [{"y": "too"}]})
    either.run_once(topic)
    rows = either.rows(topic)
    assert list(rows[0]) == ["a", "deep", "b", "many", *METADATA_NAMES]
    assert payloads(rows) == [
        {"a": 1, "deep": {"x": 1, "y": None}, "b": None, "many": [{"x": 1, "y": None}]},
        {"a": 2, "deep": {"x": 2, "y": "two"}, "b": True, "many": [{"x": None, "y": "too"}]},
    ]
    assert files.items() <= data_files(either, topic).items()


def data_files(lake: LakeUnderTest, topic: str) -> dict[str, bytes]:
    root = Path(lake.warehouse) / "kwire" / table_of(topic)
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*.parquet")}


def test_an_event_that_fits_no_row_goes_to_the_dead_letters(
    kwire: KwireProcess, lake: LakeUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = unique_name("misfits").replace("-", "_")
    # It says nothing of payloads that are no objects, so they come in.
    schema = {"eventType": "made", "properties": {"n": {"type": "integer"}, "corrupt": {"type": "integer"}}}
    assert ask(f"{kwire.http_url}/topics", "POST", {"name": topic, "schemas": [schema]}).status == 201
    misfits = [{"n": 10**30}, [{"n": 1}], 5, "text"]
    publish(kwire, topic, {"n": 1}, *misfits, None, {"corrupt": 3})
    lake.run_once(topic)
    assert re.fullmatch(
        rf"kwire\.{topic}: 3 rows added, 4 bad records, 3 in all, (\d+ min )?\d+ s\n", capsys.readouterr().out
    )
    assert [(row["n"], row["corrupt"]) for row in lake.rows(topic)] == [(1, None), (None, None), (None, 3)]
    letters = lake.rows(f"{topic}_dead_letters")
    assert [json.loads(bytes(letter["kafka_value"])) for letter in letters] == misfits
    assert (letters[0]["kafka_offset"], letters[0]["event_id"]) == (1, f"{topic}-2")
    assert all("fit the columns" in letter["problem"] for letter in letters)


def test_a_batch_without_one_good_row_is_a_batch_too(kwire: KwireProcess, either: LakeUnderTest) -> None:
    """Divided by a field, so that rows go through a shuffle: an empty one must not lose count of the bad ones."""
    topic = event_topic(kwire, "all_bad", city={"type": "string"}, n={"type": "integer"})
    publish(kwire, topic, *({"n": 10**30 + number} for number in range(3)))
    either.run_once(topic, more=("--partition-by", "city"))
    assert either.rows(topic) == []
    assert len(either.rows(f"{topic}_dead_letters")) == 3


def test_there_are_no_dead_letters_where_all_is_well(topics: Topics, lake: LakeUnderTest) -> None:
    plain, kept = topics.create("well"), topics.create("well-kept", configs={"cleanup.policy": "compact"})
    for topic in (plain, kept):
        produce_pairs(lake.kwire.bootstrap, topic, (b"k", b"a"), (b"k", b"b"))
    lake.run_once(plain, kept)
    forget_last_batch(lake, plain)
    lake.run_once(plain, kept)
    assert [row["value"] for topic in (plain, kept) for row in lake.rows(table_of(topic))] == ["a", "b", "b"]
    assert not any(lake.table(f"{table_of(topic)}_dead_letters").exists() for topic in (plain, kept))


def test_dead_letters_may_go_to_a_topic(topics: Topics, lake: LakeUnderTest) -> None:
    topic, letters = topics.create("posting"), topics.create("letters")
    produce_values(lake.kwire.bootstrap, topic, [b"a", b"\xff", b"b"])
    lake.run_once(topic, more=("--bad-rows", "topic", "--dead-letter-topic", letters))
    assert [row["value"] for row in lake.rows(table_of(topic))] == ["a", "b"]
    (record,) = read_topic(lake.kwire.bootstrap, letters)[0]
    assert record.value == b"\xff"
    assert dict(record.headers)["kwire_origin"] == f"{topic}/0/1".encode()
    assert dict(record.headers)["kwire_problem"] == b"the value is not UTF-8"


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_bad_event_may_stop_the_job_and_nothing_of_its_batch_is_written(
    topics: Topics, lake: LakeUnderTest, policy: str
) -> None:
    topic = topics.create("strict", configs={"cleanup.policy": policy})
    produce_pairs(lake.kwire.bootstrap, topic, (b"1", b"a"), (b"2", b"\xff"), (b"3", b"b"))
    with pytest.raises(BadRecord, match=f"^bad record {topic} partition 0 offset 1: the value is not UTF-8$"):
        lake.run_once(topic, more=("--bad-rows", "stop"))
    assert lake.rows(table_of(topic)) == []
    lake.run_once(topic)
    assert [row["value"] for row in lake.rows(table_of(topic))] == ["a", "b"]


def test_a_job_without_its_checkpoint_goes_on_where_the_table_ends(topics: Topics, lake: LakeUnderTest) -> None:
    topic = topics.create("forgetful", partitions=2)
    produce_values(lake.kwire.bootstrap, topic, [b"a", b"b"], partition=0)
    lake.run_once(topic)
    shutil.rmtree(Path(lake.warehouse) / "_checkpoints" / table_of(topic))
    topics.admin.create_partitions({topic: 3})
    produce_values(lake.kwire.bootstrap, topic, [b"c"], partition=1)
    produce_values(lake.kwire.bootstrap, topic, [b"d"], partition=2)
    lake.run_once(topic)
    assert lake.log_rows(table_of(topic)) == log_of(lake.kwire.bootstrap, topic)


def test_a_table_that_lacks_what_the_checkpoint_has_is_refused(topics: Topics, lake: LakeUnderTest) -> None:
    topic = topics.create("dropped")
    produce_values(lake.kwire.bootstrap, topic, [b"a"])
    lake.run_once(topic)
    lake.spark.sql(f"DROP TABLE {lake.table(table_of(topic)).name}")
    with pytest.raises(TableBehind, match="does not hold batch 0"):
        lake.run_once(topic)


def test_a_table_keeps_the_mode_it_was_begun_with(topics: Topics, lake: LakeUnderTest) -> None:
    topic = topics.create("moody")
    produce_values(lake.kwire.bootstrap, topic, [b"a"])
    lake.run_once(topic)
    topics.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"kwire.lake.mode": "upsert"})])
    produce_values(lake.kwire.bootstrap, topic, [b"b"])
    with pytest.raises(ModeChanged, match="has the mode append, its topic upsert"):
        lake.run_once(topic)


def test_names_that_clash_are_refused_before_anything_is_written(
    kwire: KwireProcess, topics: Topics, lake: LakeUnderTest
) -> None:
    with pytest.raises(ColumnClash, match="kafka_offset"):
        lake.run_once(event_topic(kwire, "reserved", kafka_offset={"type": "integer"}))
    stem = unique_name("twin")
    for name in (f"{stem}-a", f"{stem}_a"):
        topics.admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
        produce_values(kwire.bootstrap, name, [b"x"])
    with pytest.raises(TableNameClash, match="would share the table"):
        lake.run_once(f"{stem}-a", f"{stem}_a")
    lake.run_once(f"{stem}-a")
    letters, other = f"{stem}-a.dead-letters", topics.create("other")
    topics.admin.create_topics({letters: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    produce_values(kwire.bootstrap, letters, [b"x"])
    produce_values(kwire.bootstrap, other, [b"x"])
    with pytest.raises(TableNameClash, match=rf"is the table of {stem}-a, not of topic {stem}_a"):
        lake.run_once(other, f"{stem}_a")
    assert not lake.table(table_of(other)).exists(), "one that is refused is refused before another is written"
    lake.run_once(letters)
    with pytest.raises(TableNameClash, match=rf"is the table of {letters}, not of topic {stem}-a"):
        lake.run_once(f"{stem}-a")


def test_a_table_has_one_format(topics: Topics, kwire: KwireProcess, spark: "SparkSession") -> None:
    for first, second, reason in (
        ("iceberg", "parquet", "other files than a plain Parquet table"),
        ("parquet", "iceberg", "is a plain Parquet table"),
    ):
        topic = topics.create("formed")
        produce_values(kwire.bootstrap, topic, [b"x"])
        LakeUnderTest(spark, kwire, warehouse_of(spark), first).run_once(topic)
        other = LakeUnderTest(spark, kwire, warehouse_of(spark), second)
        with pytest.raises(TableBehind, match="has another format"):
            other.run_once(topic)
        with pytest.raises(ValueError, match=reason):
            other.run_once(topic, more=("--checkpoints", f"{other.warehouse}/others"))


def test_what_a_topic_lacks_is_refused(topics: Topics, lake: LakeUnderTest) -> None:
    with pytest.raises(TopicMissing, match="topic nowhere does not exist"):
        lake.run_once("nowhere")
    flat = topics.create("flat")
    for wrong, reason in (
        (("--partition-by", "city"), "has no such column"),
        (("--partition-by", "kafka_headers"), "a table cannot be partitioned by"),
        (("--bad-rows", "topic", "--dead-letter-topic", flat), "its dead letters would loop"),
        (("--dead-letter-topic", "x"), "needs --bad-rows topic"),
    ):
        with pytest.raises(ValueError, match=reason):
            lake.run_once(flat, more=wrong)
    for wrong in (("--interval", "inf"), ("--interval", "soon"), ("--file-mib", "0"), ("--batch-records", "many")):
        with pytest.raises(SystemExit):
            lake.run_once(flat, more=wrong)


def test_a_server_that_never_answered_is_not_waited_for(kwire: KwireProcess, unused_port: int) -> None:
    for url, reason in (
        (f"http://127.0.0.1:{unused_port}", "no answer from"),
        (f"{kwire.http_url}/nowhere", "does not exist"),
    ):
        with pytest.raises((ServerUnreachable, TopicMissing), match=reason):
            TopicFactsReader(Server(kwire.bootstrap, url)).topic("any")


def test_tables_are_divided_by_date_and_by_field(kwire: KwireProcess, either: LakeUnderTest) -> None:
    topic = event_topic(kwire, "divided", city={"type": ["string", "null"]}, n={"type": "integer"})
    cities = ["Oslo", "", None, "a/b=c"]
    publish(kwire, topic, *({"city": city, "n": number} for number, city in enumerate(cities * 3)))
    either.run_once(topic, more=("--partition-by", "city"))
    assert [(row["city"], row["n"]) for row in either.rows(topic)] == [
        (city, number) for number, city in enumerate(cities * 3)
    ]
    directories = {tuple(Path(path).parts[-3:-1]) for path in data_files(either, topic)}
    dates = {date.partition("=")[0] for date, _ in directories}
    assert dates == {"kafka_timestamp_day" if either.table_format == "iceberg" else "kafka_date"}
    assert len(directories) >= 3


def test_files_are_closed_at_their_size(topics: Topics, either: LakeUnderTest) -> None:
    topic = topics.create("large")
    values = [os.urandom(1200).hex().encode() for _ in range(2400)]
    produce_values(either.kwire.bootstrap, topic, values, linger_ms=20)
    either.run_once(topic, more=("--file-mib", "1", "--batch-records", "1200"))
    sizes = [len(content) for content in data_files(either, topic).values()]
    # Two batches; Iceberg looks at the size of a file every thousand rows.
    assert len(sizes) >= 4
    assert max(sizes) < 2.5 * 1024 * 1024
    assert [row["value"].encode() for row in either.rows(table_of(topic))] == values


def test_a_topic_is_switched_on_by_its_setting(topics: Topics, kwire: KwireProcess) -> None:
    on = topics.create("on", configs={"kwire.lake.mode": "append"})
    kept = topics.create("kept", configs={"kwire.lake.mode": "upsert", "cleanup.policy": "compact"})
    off, compacted = topics.create("off"), topics.create("compacted", configs={"cleanup.policy": "compact"})
    reader = TopicFactsReader(Server(kwire.bootstrap, kwire.http_url))
    assert {on, kept} <= set(reader.lake_topics())
    assert not {off, compacted} & set(reader.lake_topics())
    modes = [reader.topic(name).lake_mode for name in (on, kept, off, compacted)]
    assert modes == ["append", "upsert", "append", "upsert"]


def test_a_table_has_one_writer(
    topics: Topics, lake: LakeUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lock, "WAIT_S", 0.2)
    topic = topics.create("alone")
    lock = Path(lake.warehouse) / "_locks" / f"{table_of(topic)}.writer"
    with sole_writer(lake.spark, f"file://{lock}"):
        for _ in range(2):
            with pytest.raises(TableInUse, match="already locked by this process"):
                lake.run_once(topic)
        # Having tried has not cost this process the lock.
        with lock.with_name(f"{lock.name}.lock").open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.with_name(f"{lock.name}.lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        # Whatever checkpoint it has.
        with pytest.raises(TableInUse, match="locked by another job"):
            lake.run_once(topic, more=("--checkpoints", str(tmp_path)))
    lake.run_once(topic)
    assert lake.rows(table_of(topic)) == [], "a topic without events has a table all the same"


def test_commits_to_a_table_take_turns_with_other_processes(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(warehouse_of(spark)) / "_locks" / "turns.lock"
    with hold_commit_lock(spark, "turns"), hold_commit_lock(spark, "turns"):
        # One process has it as often as it likes.
        assert path.exists()
    monkeypatch.setattr(commit_lock, "WAIT_S", 0.2)
    # This is another process than Spark's.
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(TableInUse, match="locked by another job"), hold_commit_lock(spark, "turns"):
            pass
        fcntl.lockf(file, fcntl.LOCK_UN)
        with hold_commit_lock(spark, "turns"), pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_batch_of_plain_files_is_finished_by_the_next_driver(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The driver dies after the mark, with so many of three files in their places."""
    table = open_lake(spark, str(tmp_path), "parquet").table("t")
    frame = spark.range(30, numPartitions=3).selectExpr("id", "timestamp_seconds(id) AS kafka_timestamp")
    table.prepare(columns_of(frame.schema.jsonValue()), Partitioning())
    move = Files.move
    done: list[str] = []

    def dying_move(self: Files, path: str, target: str) -> None:
        if len(done) == moved:
            raise KeyboardInterrupt
        done.append(path)
        move(self, path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "move", dying_move)
        with pytest.raises(KeyboardInterrupt):
            table.append(frame, BatchMark("q", 0))
    again = ParquetTable(spark, Files(spark, table.name), 1 << 20)
    assert again.last_mark() == BatchMark("q", 0)
    # As the job does it: a batch that is there it does not append again.
    again.prepare(again.columns(), Partitioning())
    assert again.holds(BatchMark("q", 0))
    assert sorted(row["id"] for row in again.read().collect()) == list(range(30))
    again.append(frame, BatchMark("q", 1, {"note": "2"}))
    assert again.read().count() == 60
    assert again.last_mark("q") == BatchMark("q", 1, {"note": "2"})


def test_a_table_of_plain_files_that_was_about_to_be_made_is_made(spark: "SparkSession", tmp_path: Path) -> None:
    own = tmp_path / "kwire" / "t" / "_kwire"
    own.mkdir(parents=True)
    (own / "table.json.new").write_text('{"schema": {"ty')
    table = open_lake(spark, str(tmp_path), "parquet").table("t")
    table.prepare([Column("a", "string")], Partitioning(None))
    assert table.columns() == (Column("a", "string"),)


def test_a_file_is_replaced_in_one_step(spark: "SparkSession", tmp_path: Path) -> None:
    replacements = repetitions(quick=50, full=200)
    files = Files(spark, f"file://{tmp_path}")
    files.replace("a/mark.json", "0")
    stop = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add((tmp_path / "a" / "mark.json").read_text())
            except FileNotFoundError:
                seen.add("none")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(1, replacements):
            files.replace("a/mark.json", str(number))
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert files.read("a/mark.json") == str(replacements - 1)
    assert seen <= set(map(str, range(replacements)))

"""Replay: what comes back is what was there, key by key; a run that was killed goes on, and nothing is there twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from kwire.pipeline import ordered_rows
from kwire.pipeline.graceful_stop import StopRequest
from kwire.pipeline.replay.checkpoint import CheckpointFile, ReplayCheckpoint
from kwire.pipeline.replay.event import CannotReplay, Record, ReplayEvent
from kwire.pipeline.replay.job import CHECK, Replay
from kwire.pipeline.replay.rate_limit import RateLimiter
from kwire.pipeline.replay.rounds import Round
from kwire.pipeline.replay.source import Backlog
from kwire.pipeline.replay.target import BY_KEY, KEEP, Target
from kwire.pipeline.reports.job_reports import NoReports
from kwire.pipeline.server import Server
from tests.support.clients import DEADLINE_S, Topics, produce_values, read_topic, unique_name
from tests.support.effort import repetitions
from tests.support.http_json import ask
from tests.support.jobs import run_job
from tests.support.server import POLL_INTERVAL_S, KwireProcess
from tests.support.spark import SHORT_LIVED_JOB, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

needs_spark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(400),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PARTITIONS = 3
KILLS = repetitions(quick=1, full=1)
PROCESS_S_MAX = 120


def records_of(kwire: KwireProcess, topic: str) -> dict[int, list[Record]]:
    """All that a consumer sees of a topic, besides offsets."""
    return {
        partition: [
            Record(one.key, one.value, one.timestamp, tuple((name, value) for name, value in one.headers))
            for one in records
        ]
        for partition, records in read_topic(kwire.bootstrap, topic).items()
    }


# --- crashes at every step, without Spark: the source is a list, the server is real


class ListSource:
    def __init__(self, events: Sequence[ReplayEvent]) -> None:
        self._events = events

    def backlog(self, settled: Mapping[int, int]) -> Backlog:
        ahead = list(self.after(settled))
        return Backlog(len(ahead), 0, min((one.record.timestamp_ms for one in ahead), default=None))

    def after(self, settled: Mapping[int, int], backlog: Backlog | None = None) -> Iterator[ReplayEvent]:
        return (one for one in self._events if one.offset >= settled.get(one.partition, 0))

    def between(self, settled: Mapping[int, int], through: Mapping[int, int]) -> list[ReplayEvent]:
        return [one for one in self.after(settled) if one.offset < through.get(one.partition, 0)]


class Crash(Exception):
    """In the place of a kill: nothing after it is done."""


class CrashingTarget(Target):
    """Ends the process, as it were, before or behind some call that sends a round."""

    crash_at = -1
    is_sent = True
    calls = 0

    def send(self, whole_round: Round) -> dict[int, int]:
        self.calls += 1
        if self.calls == self.crash_at and not self.is_sent:
            raise Crash
        ends = super().send(whole_round)
        if self.calls == self.crash_at:
            raise Crash
        return ends


def made_events(count: int, *, keys: int = 7) -> list[ReplayEvent]:
    """Of three partitions, some with the same content, with gaps in their offsets as a compacted log has them."""
    now_ms = int(time.time() * 1000) - 60_000
    draw = random.Random(count)
    return [
        ReplayEvent(
            number % PARTITIONS,
            number // PARTITIONS * 3,
            Record(
                None if number % 11 == 0 else f"key-{draw.randrange(keys)}".encode(),
                None if number % 13 == 0 else f"value {number % 5}".encode(),
                now_ms + number // 4,
                (("n", str(number % 3).encode()), ("empty", b"")) if number % 2 else (),
            ),
        )
        for number in range(count)
    ]


def by_source(events: Sequence[ReplayEvent]) -> dict[int, list[Record]]:
    return {part: [one.record for one in events if one.partition == part] for part in range(PARTITIONS)}


def replayed(kwire: KwireProcess, topic: str, checkpoints: CheckpointFile, source: ListSource, **crash: Any) -> Replay:
    """One run; whether it crashes is up to `crash`."""
    target = CrashingTarget(Server(kwire.bootstrap, kwire.http_url), topic, crash.pop("placement", KEEP))
    target.__dict__.update(crash)
    # Slow, so that rounds are small and many.
    replay = Replay(source, target, checkpoints, RateLimiter(20, lambda _: None), StopRequest(), NoReports())
    try:
        with checkpoints.locked():
            checkpoint = checkpoints.read({"to": topic})
            replay.run(checkpoint, CHECK, is_shown=False)
    finally:
        target.close()
    return replay


@pytest.mark.parametrize("placement", [KEEP, BY_KEY])
def test_a_crash_before_or_behind_any_round_leaves_nothing_out_and_nothing_twice(
    kwire: KwireProcess, topics: Topics, tmp_path: Path, placement: str
) -> None:
    events = made_events(100)
    topic = topics.create("replayed", partitions=PARTITIONS)
    checkpoints = CheckpointFile(tmp_path / "note.json")
    for is_sent in (True, False, True, True, False):
        with pytest.raises(Crash):
            replayed(kwire, topic, checkpoints, ListSource(events), crash_at=2, is_sent=is_sent, placement=placement)
    last = replayed(kwire, topic, checkpoints, ListSource(events), placement=placement)
    found = records_of(kwire, topic)
    if placement == KEEP:
        assert found == by_source(events)
    else:
        check_order_of_each_key(events, found)
    # Once more adds nothing.
    assert last.sent + last.found > 0
    assert replayed(kwire, topic, checkpoints, ListSource(events), placement=placement).sent == 0
    assert records_of(kwire, topic) == found


def check_order_of_each_key(events: Sequence[ReplayEvent], found: Mapping[int, Sequence[Record]]) -> None:
    """All are there, and those of one key and partition are in one partition, in their order."""
    everything = [record for records in found.values() for record in records]
    assert sorted(map(repr, everything)) == sorted(repr(one.record) for one in events)
    for key in {one.record.key for one in events if one.record.key is not None}:
        homes = [part for part, records in found.items() if any(record.key == key for record in records)]
        assert len(homes) == 1


def test_events_of_others_in_the_topic_are_not_taken_for_ours(
    kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    events = made_events(60)
    topic = topics.create("shared", partitions=PARTITIONS)
    checkpoints = CheckpointFile(tmp_path / "note.json")
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    strangers = {part: Record(b"stranger", b"here too", events[0].record.timestamp_ms) for part in range(PARTITIONS)}

    def intrude() -> None:
        for part, record in strangers.items():
            producer.send(
                topic, key=record.key, value=record.value, partition=part, timestamp_ms=record.timestamp_ms
            ).get(timeout=DEADLINE_S)

    intrude()
    with pytest.raises(Crash):
        replayed(kwire, topic, checkpoints, ListSource(events), crash_at=2)
    intrude()
    with pytest.raises(Crash):
        replayed(kwire, topic, checkpoints, ListSource(events), crash_at=2, is_sent=False)
    intrude()
    replayed(kwire, topic, checkpoints, ListSource(events))
    producer.close(timeout=DEADLINE_S)
    ours = {
        part: [record for record in records if record.key != b"stranger"]
        for part, records in records_of(kwire, topic).items()
    }
    assert ours == by_source(events)


def test_a_round_that_was_interrupted_is_looked_for_where_it_went_though_there_are_more_partitions_now(
    kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    events = made_events(60)
    topic = topics.create("growing", partitions=2)
    checkpoints = CheckpointFile(tmp_path / "note.json")
    with pytest.raises(Crash):
        replayed(kwire, topic, checkpoints, ListSource(events), crash_at=2, placement=BY_KEY)
    topics.admin.create_partitions({topic: 5})
    replayed(kwire, topic, checkpoints, ListSource(events), placement=BY_KEY)
    found = [repr(record) for records in records_of(kwire, topic).values() for record in records]
    assert sorted(found) == sorted(repr(one.record) for one in events)


def test_a_signal_ends_it_behind_the_round_that_is_under_way(
    kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    events = made_events(60)
    topic = topics.create("stopped", partitions=PARTITIONS)
    checkpoints = CheckpointFile(tmp_path / "note.json")
    target, stop = Target(Server(kwire.bootstrap, kwire.http_url), topic, KEEP), StopRequest()

    def kill_at_once(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        with checkpoints.locked(), stop.on_signals():
            # A clock that stands still: however slow the machine is, the second round has to wait.
            limiter = RateLimiter(20, kill_at_once, lambda: 0.0)
            replay = Replay(ListSource(events), target, checkpoints, limiter, stop, NoReports())
            checkpoint = replay.run(checkpoints.read({"to": topic}), CHECK, is_shown=False)
    finally:
        target.close()
    # The first goes at once; the second is waited for, and that is when the signal comes.
    assert replay.sent == 20 < len(events)
    assert not replay.is_complete
    assert not checkpoint.is_in_doubt
    assert checkpoints.read({"to": topic}) == checkpoint
    assert replayed(kwire, topic, checkpoints, ListSource(events)).is_complete
    assert records_of(kwire, topic) == by_source(events)


def test_what_is_settled_may_have_grown_too_old_for_the_target(
    kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    events = made_events(6)
    old = [one._replace(record=one.record._replace(timestamp_ms=1)) for one in events[:3]]
    topic = topics.create("keeps-a-day", partitions=PARTITIONS, configs={"retention.ms": str(24 * 3_600_000)})
    checkpoints = CheckpointFile(tmp_path / "note.json")
    settled = {one.partition: one.offset + 1 for one in old}
    checkpoints.write(ReplayCheckpoint({"to": topic}, settled=settled, events=len(old)))
    assert replayed(kwire, topic, checkpoints, ListSource([*old, *events[3:]])).sent == 3


def test_events_go_back_to_their_own_topic_only_if_it_is_empty_or_that_is_said(
    kwire: KwireProcess, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("full")
    produce_values(kwire.bootstrap, topic, [b"here"])
    server = ["--bootstrap", kwire.bootstrap, "--http", kwire.http_url, "--warehouse", str(tmp_path)]
    assert run_job("replay", *server, "--topic", topic) == 2
    assert f"topic {topic} already has events. To add its own events again" in capfd.readouterr().err


def test_what_cannot_be_told_any_more_has_to_be_said(kwire: KwireProcess, topics: Topics, tmp_path: Path) -> None:
    from kafka import TopicPartition

    events = made_events(30)
    topic = topics.create("emptied", partitions=PARTITIONS)
    checkpoints = CheckpointFile(tmp_path / "note.json")
    with pytest.raises(Crash):
        replayed(kwire, topic, checkpoints, ListSource(events), crash_at=2)
    topics.admin.delete_records({TopicPartition(topic, part): -1 for part in range(PARTITIONS)})
    with pytest.raises(CannotReplay, match="--in-doubt send, or --in-doubt skip"):
        replayed(kwire, topic, checkpoints, ListSource(events))


def test_what_the_target_would_not_keep_is_refused_before_anything_is_sent(
    kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    events = made_events(3)
    for number, (configs, complaint) in enumerate(
        (
            ({"retention.ms": "1000"}, "older than retention.ms=1000"),
            ({"message.timestamp.type": "LogAppendTime"}, "would replace timestamps"),
        )
    ):
        topic = topics.create("unfit", partitions=PARTITIONS, configs=configs)
        with pytest.raises(CannotReplay, match=complaint):
            replayed(kwire, topic, CheckpointFile(tmp_path / f"{number}.json"), ListSource(events))
        assert records_of(kwire, topic) == {part: [] for part in range(PARTITIONS)}
    narrow = topics.create("narrow", partitions=1)
    with pytest.raises(CannotReplay, match=r"narrow.* has only 1 partitions\. Add partitions"):
        replayed(kwire, narrow, CheckpointFile(tmp_path / "narrow.json"), ListSource(events))
    with pytest.raises(CannotReplay, match="target topic nowhere does not exist"):
        Target(Server(kwire.bootstrap, kwire.http_url), "nowhere", KEEP)


def test_a_record_that_the_topic_refuses_is_named_and_stops_the_replay(kwire: KwireProcess, tmp_path: Path) -> None:
    topic = unique_name("picky")
    schema = {"eventType": "message", "type": "object", "required": ["id"]}
    assert ask(f"{kwire.http_url}/topics", "POST", {"name": topic, "schemas": [schema]}).status == 201
    now_ms = int(time.time() * 1000)
    values = [b'{"id":1}'] * 15 + [b'{"no":1}'] + [b'{"id":2}'] * 15
    events = [ReplayEvent(0, number, Record(None, value, now_ms)) for number, value in enumerate(values)]
    with pytest.raises(CannotReplay, match=f"partition 0 offset 1.: topic {topic} refused the event"):
        replayed(kwire, topic, CheckpointFile(tmp_path / "note.json"), ListSource(events))
    found = records_of(kwire, topic)[0]
    assert [record.value for record in found] == values[: len(found)]
    assert len(found) <= 15


# --- from the lake and from files, by Spark


class World:
    """A server, the lake that goes with the session, and the words that a job needs."""

    def __init__(self, kwire: KwireProcess, warehouse: str) -> None:
        self.kwire = kwire
        self.warehouse = warehouse
        self.server = ["--bootstrap", kwire.bootstrap, "--http", kwire.http_url, "--warehouse", self.warehouse]

    def lake(self, topic: str, *more: str) -> None:
        assert run_job("lake", *self.server, "--topic", topic, "--once", "--quiet", *more) == 0

    def replay(self, topic: str, target: str, *more: str) -> int:
        return run_job("replay", *self.server, "--topic", topic, "--to", target, "--quiet", *more)


@pytest.fixture
def world(spark: "SparkSession", kwire: KwireProcess) -> World:
    return World(kwire, warehouse_of(spark))


def fill(kwire: KwireProcess, topic: str, count: int, *, began_ms: int | None = None) -> None:
    began = int(time.time() * 1000) - count - 60_000 if began_ms is None else began_ms
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap, linger_ms=5)
    draw = random.Random(count)
    for number in range(count):
        producer.send(
            topic,
            key=f"key-{draw.randrange(20)}".encode() if number % 7 else None,
            value=f"text {number} äöü".encode() if number % 9 or not number % 7 else None,
            headers=[("n", str(number).encode()), ("n", b"again")] if number % 2 else [],
            partition=draw.randrange(PARTITIONS),
            # Not in order within a partition either, as clocks of several producers are.
            timestamp_ms=began + number + draw.randrange(50),
        )
    producer.close(timeout=DEADLINE_S)


@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
class TestTable:
    pytestmark = needs_spark

    def test_a_topic_comes_back_from_its_table_record_by_record(
        self,
        world: World,
        topics: Topics,
        table_format: str,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # So that the table comes in several parts.
        monkeypatch.setattr(ordered_rows, "PART_ROWS", 40)
        if table_format == "parquet":
            # Formats do not share a directory.
            world = World(world.kwire, str(tmp_path))
        topic = topics.create(f"origin-{table_format}", partitions=PARTITIONS)
        target = topics.create(f"copy-{table_format}", partitions=PARTITIONS)
        fill(world.kwire, topic, 300)
        form = ["--format", table_format]
        world.lake(topic, *form)
        assert world.replay(topic, target, *form) == 0
        original = records_of(world.kwire, topic)
        assert records_of(world.kwire, target) == original
        assert f"{target}: 300 events sent, 0 were there already, 300 in all" in capfd.readouterr().out
        # What the table has got since goes too, and nothing else.
        fill(world.kwire, topic, 20)
        world.lake(topic, *form)
        assert world.replay(topic, target, *form) == 0
        assert records_of(world.kwire, target) == records_of(world.kwire, topic)
        assert f"{target}: 20 events sent, 0 were there already, 320 in all" in capfd.readouterr().out


class TestFromSpark:
    pytestmark = needs_spark

    def test_keys_find_their_partition_where_there_are_fewer(self, world: World, topics: Topics) -> None:
        topic = topics.create("wide", partitions=PARTITIONS)
        target = topics.create("less", partitions=2)
        fill(world.kwire, topic, 200)
        world.lake(topic)
        assert world.replay(topic, target) == 2
        assert world.replay(topic, target, "--partitions", "by-key", "--checkpoint", f"{world.warehouse}/other") == 0
        found = records_of(world.kwire, target)
        original = records_of(world.kwire, topic)
        homes: dict[bytes, int] = {}
        for part, records in found.items():
            for record in records:
                if record.key is not None:
                    assert homes.setdefault(record.key, part) == part
        for key in homes:
            for origin in original.values():
                of_key = [record for record in origin if record.key == key]
                there = [record for record in found[homes[key]] if record in of_key]
                assert there == of_key
        assert sum(map(len, found.values())) == 200

    def test_a_part_of_the_time_can_be_replayed(self, world: World, topics: Topics) -> None:
        topic, target = topics.create("day", partitions=PARTITIONS), topics.create("noon", partitions=PARTITIONS)
        fill(world.kwire, topic, 100, began_ms=int(time.time() * 1000) - 3_600_000)
        world.lake(topic)
        original = records_of(world.kwire, topic)
        stamps = sorted(record.timestamp_ms for records in original.values() for record in records)
        first_ms, end_ms = stamps[30], stamps[70]

        def text(stamp_ms: int) -> str:
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamp_ms // 1000)) + f".{stamp_ms % 1000:03d}"

        assert world.replay(topic, target, "--since", text(first_ms), "--until", text(end_ms)) == 0
        assert records_of(world.kwire, target) == {
            part: [record for record in records if first_ms <= record.timestamp_ms < end_ms]
            for part, records in original.items()
        }

    def test_events_with_schemas_pass_the_schemas_again(self, world: World) -> None:
        names = unique_name("orders"), unique_name("orders-again")
        schema = {
            "eventType": "order.placed",
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "free": {"type": "object"},
                "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
            },
            "required": ["id"],
        }
        for name in names:
            assert ask(f"{world.kwire.http_url}/topics", "POST", {"name": name, "schemas": [schema]}).status == 201
        payloads = [
            {"id": "1", "free": {"deep": [1, {"er": None}]}, "lines": [{"sku": "a"}, {"sku": "{}"}]},
            {"id": '{"a":1}'},
            {"id": "ü", "lines": []},
        ]
        events = [
            {"topic": names[0], "type": "order.placed", "payload": payload, "metadata": {"trace": "t"}, "key": "k"}
            for payload in payloads
        ]
        assert ask(f"{world.kwire.http_url}/events", "POST", events).status == 201
        world.lake(names[0])
        assert world.replay(*names) == 0
        original, again = (records_of(world.kwire, name)[0] for name in names)
        assert [json.loads(record.value or b"") for record in again] == payloads
        # All but the bytes of the payload is the same.
        assert [record._replace(value=None) for record in again] == [record._replace(value=None) for record in original]

    @pytest.mark.full("runs the lake job twice more; the test before it replays rows of one schema")
    def test_rows_from_before_a_schema_named_fields_come_back_from_their_text(self, world: World) -> None:
        names = unique_name("loose"), unique_name("strict")
        schema: dict[str, Any] = {"eventType": "noted", "type": "object"}
        for name in names:
            assert ask(f"{world.kwire.http_url}/topics", "POST", {"name": name, "schemas": [schema]}).status == 201
        payloads: list[dict[str, Any]] = [{"id": 1, "more": "x"}, {"id": 2}]
        for payload in payloads:
            event = {"topic": names[0], "type": "noted", "payload": payload}
            assert ask(f"{world.kwire.http_url}/events", "POST", [event]).status == 201
            world.lake(names[0])
            named = {**schema, "properties": {"id": {"type": "integer"}}}
            assert ask(f"{world.kwire.http_url}/topics/{names[0]}/schemas", "PUT", {"schemas": [named]}).status == 200
        assert world.replay(*names) == 0
        assert [json.loads(record.value or b"") for record in records_of(world.kwire, names[1])[0]] == payloads

    def test_event_files_come_back_byte_by_byte(self, world: World, tmp_path: Path) -> None:
        # Characters that mean something in a pattern.
        tmp_path = tmp_path / "[all] {of, them}?*"
        names = unique_name("filed"), unique_name("filed-again")
        schema = {"eventType": "noted", "type": "object"}
        for name in names:
            assert ask(f"{world.kwire.http_url}/topics", "POST", {"name": name, "schemas": [schema]}).status == 201
        events = [
            {"topic": names[0], "type": "noted", "payload": {"n": number, "x": 1.5}, "metadata": {"m": str(number)}}
            for number in range(1_050)
        ]
        for start in (0, 1_000):
            posted = ask(f"{world.kwire.http_url}/events", "POST", events[start : start + 1_000])
            assert posted.status == 201
        kwire_program = [sys.executable, "-m", "kwire"]
        export = ["event", "export", "--quiet", "--http", world.kwire.http_url, "--to", str(tmp_path), names[0]]
        subprocess.run([*kwire_program, *export], check=True, timeout=PROCESS_S_MAX, capture_output=True)
        # The first thousand are one packed file, the others a file each.
        pack = ["event", "pack", "--quiet", "--dir", str(tmp_path), "--before", "2999-01-01", names[0]]
        subprocess.run([*kwire_program, *pack], check=True, timeout=PROCESS_S_MAX, capture_output=True)
        assert len(list(tmp_path.rglob("*.ndjson.gz"))) == 1
        assert len(list((tmp_path / "data").rglob("*.json"))) == 50
        assert world.replay(*names, "--files", str(tmp_path)) == 0
        original, again = (records_of(world.kwire, name)[0] for name in names)
        assert [(one.key, one.value, one.timestamp_ms) for one in again] == [
            (one.key, one.value, one.timestamp_ms) for one in original
        ]
        # The event store gives each event an id of its own, by which the record is known; else headers are the same.
        for number, (before, after) in enumerate(zip(original, again, strict=True), start=1):
            assert dict(after.headers) == {**dict(before.headers), "ce_id": f"{names[0]}-{number}".encode()}

    def test_a_damaged_event_file_is_named_and_nothing_behind_it_is_sent(
        self, world: World, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        target = topics.create("undamaged")
        folder = tmp_path / "data" / "torn" / "2026-11-16" / "0000"
        folder.mkdir(parents=True)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for number in range(1, 4):
            told = {"id": f"torn-{number}", "timestamp": stamp, "type": "t", "payload": number}
            (folder / f"torn-{number}.json").write_text(json.dumps(told) + "\n")
        (folder / "torn-2.json").write_text('{"id":"torn-2","timestamp":"' + stamp + '","type":"t"}\n')
        assert world.replay("torn", target, "--files", str(tmp_path)) == 2
        assert "torn-2.json: not a valid event" in capfd.readouterr().err
        assert [record.value for record in records_of(world.kwire, target)[0]] in ([], [b"1"])
        # Lines without a time are not passed over when a time is asked for.
        (folder / "torn-2.json").write_text("{}\n")
        again = ["--since", "2020-01-01", "--checkpoint", str(tmp_path / "other")]
        assert world.replay("torn", target, "--files", str(tmp_path), *again) == 2
        assert "torn-2.json: not a valid event" in capfd.readouterr().err
        assert world.replay("not-there", target, "--files", str(tmp_path)) == 2
        assert f"{tmp_path} contains no events of topic not-there" in capfd.readouterr().err

    # It waits for jobs, which are processes of their own: the tests that share Spark go on in another worker.
    @pytest.mark.xdist_group("spark-processes")
    @pytest.mark.full("starts Java four times; test_lake_kill.py kills a driver in every run")
    def test_a_replay_that_is_killed_again_and_again_ends_with_every_record_once(
        self, world: World, topics: Topics, tmp_path: Path
    ) -> None:
        topic, target = topics.create("killed", partitions=PARTITIONS), topics.create("again", partitions=PARTITIONS)
        count = 1_500
        fill(world.kwire, topic, count)
        world.lake(topic)
        words = [
            *("pipeline", "replay", *world.server, "--topic", topic, "--to", target, "--quiet"),
            *("--checkpoint", str(tmp_path / "note.json"), *SHORT_LIVED_JOB),
        ]
        draw = random.Random()
        for kill in range(KILLS):
            # Slow enough to be caught in the middle.
            process = subprocess.Popen([sys.executable, "-m", "kwire", *words, "--rate", "300"])
            try:
                wanted = int(count * (kill + draw.random()) / (KILLS + 1))
                await_records(topics, target, wanted, process)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(PROCESS_S_MAX)
        # At last it is asked to stop, and stops in order; then it does the rest.
        process = subprocess.Popen([sys.executable, "-m", "kwire", *words, "--rate", "300"], stdout=subprocess.PIPE)
        try:
            await_records(topics, target, int(count * (KILLS + 0.1) / (KILLS + 1)), process)
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=PROCESS_S_MAX)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 130
        assert told.strip().endswith(b"stopped before the end, run the same command again to continue")
        assert json.loads((tmp_path / "note.json").read_text())["through"] == {}
        assert sum(map(len, records_of(world.kwire, target).values())) < count
        assert world.replay(topic, target, "--checkpoint", str(tmp_path / "note.json")) == 0
        assert records_of(world.kwire, target) == records_of(world.kwire, topic)


def await_records(topics: Topics, topic: str, count: int, process: "subprocess.Popen[bytes]") -> None:
    from kafka import OffsetSpec, TopicPartition

    parts = {TopicPartition(topic, part): OffsetSpec.LATEST for part in range(PARTITIONS)}
    deadline = time.monotonic() + PROCESS_S_MAX
    while sum(one.offset for one in topics.admin.list_partition_offsets(parts).values()) <= count:
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{topic} has not got {count} records"
        time.sleep(POLL_INTERVAL_S)

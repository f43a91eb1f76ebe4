"""Backups of a server under load, restored: every acknowledged record is there, and nothing is half there."""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from storage.snapshot.links import SNAPSHOT_SUFFIX
from tests.support.backup_load import (
    EVENT_TOPICS,
    GROUP,
    KEYED,
    PAIRS,
    PLAIN,
    TIMEOUT_S,
    Client,
    EventWriter,
    KeyedWriter,
    PairWriter,
    PlainWriter,
    Reader,
    all_clients,
    events_of,
    make_topics,
    records_of,
)
from tests.support.cli import run_program
from tests.support.http_json import ask
from tests.support.server import KwireProcess, wait_until

StartKwire = Callable[..., KwireProcess]

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}
# Records of each kind before the backup begins.
TOLD_MIN = 50


def test_a_restored_backup_of_a_loaded_server_has_all_that_was_acknowledged(
    start_kwire: StartKwire, tmp_path: Path
) -> None:
    source = start_kwire(
        settings=SETTINGS | {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}, names_data_dir=False
    )
    make_topics(source.bootstrap, source.http_url)
    clients = all_clients(source.bootstrap, source.http_url)
    for client in clients:
        client.start()
    tellers = [one for one in clients if isinstance(one, PlainWriter | PairWriter | EventWriter)]
    wait_until(lambda: all(len(one.told) >= TOLD_MIN or one.failure for one in tellers), "every client has written")
    assert [one.failure for one in tellers if one.failure] == []
    told = {client: list(client.told) for client in clients}
    began = time.monotonic()
    done = run_program("backup", "create", tmp_path / "backup", "--http", source.http_url)
    assert done.code == 0, done.errors
    print(f"backup: {time.monotonic() - began:.2f} s, {done.out.strip()}")
    for client in clients:
        client.stop()
    source.kill()
    verified = run_program("backup", "verify", tmp_path / "backup")
    assert verified.code == 0, verified.errors
    restored = run_program("backup", "restore", tmp_path / "backup", tmp_path / "new one", tmp_path / "new two")
    assert restored.code == 0, restored.errors
    target = start_kwire(
        settings=SETTINGS | {"log.dirs": f"{tmp_path / 'new one'},{tmp_path / 'new two'}"}, names_data_dir=False
    )
    check_all(target, told)
    assert target.stop() == 0
    sound = run_program("log", "verify", tmp_path / "new one", tmp_path / "new two")
    assert sound.code == 0, sound.out


def check_all(target: KwireProcess, told: dict[Client, list[Any]]) -> None:
    counts: Counter[str] = Counter()
    plain = {(one.partition(), one.offset()): one.value() for one in records_of(target.bootstrap, PLAIN)}
    pairs = records_of(target.bootstrap, PAIRS)
    numbers = [[one.value().decode() for one in pairs if one.partition() == at] for at in (0, 1)]
    assert Counter(numbers[0]) == Counter(numbers[1]), "a transaction is visible in one partition only"
    assert max(Counter(numbers[0]).values()) == 1
    keyed: dict[bytes, int] = {}
    for one in records_of(target.bootstrap, KEYED):
        keyed[one.key()] = int(one.value().split(b".")[0])
    batches = Counter(one["payload"]["batch"] for one in events_of(target.http_url))
    assert set(batches.values()) == {4}, "a batch of events is cut in half"
    in_topics = Counter(one.value() for topic in EVENT_TOPICS for one in records_of(target.bootstrap, topic))
    assert sum(in_topics.values()) == sum(batches.values())
    for client, acknowledged in told.items():
        counts[type(client).__name__] += len(acknowledged)
        if isinstance(client, KeyedWriter):
            for _, _, _, key, value in acknowledged:
                assert keyed[key] >= int(value.split(b".")[0])
        elif type(client) is PlainWriter:
            for _, partition, offset, _, value in acknowledged:
                assert plain[partition, offset] == value
        elif isinstance(client, PairWriter):
            assert set(acknowledged) <= set(numbers[0])
        elif isinstance(client, EventWriter):
            assert set(acknowledged) <= set(batches)
        elif isinstance(client, Reader):
            check_group(target, acknowledged)
    print("acknowledged before the backup:", dict(counts), "restored:", len(plain), len(numbers[0]), len(batches))


def check_group(target: KwireProcess, acknowledged: list[tuple[int, int]]) -> None:
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        for one in consumer.committed([TopicPartition(PLAIN, at) for at in (0, 1)], TIMEOUT_S):
            _, end = consumer.get_watermark_offsets(one, TIMEOUT_S)
            assert one.offset <= end, "the group is behind the end of the log"
            last = max((offset for partition, offset in acknowledged if partition == one.partition), default=-1)
            assert one.offset >= last
    finally:
        consumer.close()


def test_a_kill_during_a_backup_leaves_no_links_and_no_half_backup(start_kwire: StartKwire, tmp_path: Path) -> None:
    process = start_kwire()
    make_topics(process.bootstrap, process.http_url)
    writer = PlainWriter(process.bootstrap, process.http_url)
    writer.start()
    wait_until(lambda: len(writer.told) >= TOLD_MIN, "records are written")
    writer.stop()
    backup = ask(f"{process.http_url}/admin/backups", "POST").body
    assert list(process.data_dir.glob(f"*{SNAPSHOT_SUFFIX}/*"))
    assert ask(f"{process.http_url}/admin/backups", "POST").status == 409
    process.kill()
    process.start()
    process.ready()
    wait_until(lambda: not list(process.data_dir.glob(f"*{SNAPSHOT_SUFFIX}")), "the links are removed")
    assert ask(f"{process.http_url}/admin/backups/{backup['id']}").status == 404
    assert len(records_of(process.bootstrap, PLAIN)) == len(writer.told)
    killer = threading.Timer(0.0, process.kill)
    killer.start()
    failed = run_program("backup", "create", tmp_path / "backup", "--http", process.http_url)
    killer.join()
    if failed.code:
        assert "kwire:" in failed.errors
        assert not (tmp_path / "backup").exists()
    else:
        shutil.rmtree(tmp_path / "backup")  # it was faster than the kill

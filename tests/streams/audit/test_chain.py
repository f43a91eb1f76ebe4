"""The hash chain of the audit log: it is whole whatever the server goes through, and every change of it is found."""

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kwire.access.audit.entries import TOPIC
from kwire.access.audit.queue import AuditQueue
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.broker.topics.topics import NewTopic
from kwire.config.access import AuditConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.audit import writer as writer_module
from kwire.streams.audit.chain import NO_RECORD, previous_hash, record_hash
from kwire.streams.audit.verification import AUDIT_FOLDER, AuditChain, verify_chain
from kwire.streams.audit.writer import AuditWriter
from kwire.streams.log import StreamLog
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.recovery.verify_folder import plan_folder
from tests.support.hooked_node import until
from tests.support.node import QuietNode, in_loop

CONFIG = AuditConfig(has_webhooks=True, has_changes=True, has_refusals=True, retention_ms=3_600_000)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made


class Recorder:
    """A queue and its writer, in one life of a node."""

    def __init__(self, node: QuietNode) -> None:
        self.node = node
        self.queue = AuditQueue(CONFIG, node.clock)
        self.writer = AuditWriter(self.queue, node.topics, node.clock, CONFIG.retention_ms)
        self.writer.start()

    async def record(self, *names: str) -> None:
        """Each entry is a batch of its own."""
        for name in names:
            self.queue.changed("topic.created", TOPIC, name)
            await self.written()

    async def written(self) -> None:
        await until(lambda: self.writer._task is None or self.writer._task.done())

    async def close(self) -> None:
        await self.writer.close()


def chain_of(node: QuietNode) -> AuditChain:
    plan = plan_folder(str(node.directory / AUDIT_FOLDER), "", files=node.files)
    return verify_chain(plan.jobs)


def segment_of(node: QuietNode) -> Path:
    (path,) = (node.directory / AUDIT_FOLDER).glob("*.log")
    return path


def stored_records(path: Path) -> list[Record]:
    found: list[Record] = []
    data, position = path.read_bytes(), 0
    while position + 61 <= len(data) and parse_header(data, position).size_bytes > 12:
        size = parse_header(data, position).size_bytes
        found += read_records(data[position : position + size], 2**20)
        position += size
    return found


def write_records(path: Path, records: list[Record]) -> None:
    """As an attacker would who knows the format: offsets and checksums are right."""
    data = b""
    for offset, record in enumerate(records):
        batch = build_batch([record._replace(offset=0)], base_offset=offset)
        data += bytes(batch)
    path.write_bytes(data)


async def recorded(node: QuietNode, count: int = 6) -> list[Record]:
    recorder = Recorder(node)
    await recorder.record(*(f"t{number}" for number in range(count)))
    await recorder.close()
    return stored_records(segment_of(node))


@in_loop
async def test_each_record_has_the_hash_of_the_one_before(node: QuietNode) -> None:
    records = await recorded(node)
    assert [json.loads(record.value or b"")["resource"]["name"] for record in records] == [f"t{n}" for n in range(6)]
    assert previous_hash(records[0]) == NO_RECORD.hex()
    for before, record in pairwise(records):
        assert previous_hash(record) == record_hash(before).hex()
    chain = chain_of(node)
    assert (chain.record_count, chain.break_count, chain.first_offset, chain.last_offset) == (6, 0, 0, 5)
    assert chain.head == record_hash(records[-1]).hex()


@in_loop
async def test_entries_of_one_moment_are_one_batch_and_chained(node: QuietNode) -> None:
    recorder = Recorder(node)
    for number in range(1200):
        recorder.queue.changed("topic.created", TOPIC, f"t{number}")
    await recorder.close()
    chain = chain_of(node)
    assert (chain.record_count, chain.break_count) == (1200, 0)


@pytest.mark.parametrize("is_crash", [False, True])
@in_loop
async def test_the_chain_continues_over_restarts(node: QuietNode, is_crash: bool) -> None:
    for life in range(3):
        recorder = Recorder(node)
        await recorder.record(f"a{life}", f"b{life}")
        if not is_crash:
            await recorder.close()
        node.restart()
    chain = chain_of(node)
    assert (chain.record_count, chain.break_count) == (6, 0)


@in_loop
async def test_the_chain_continues_from_what_a_crash_left(node: QuietNode) -> None:
    await recorded(node)
    path = segment_of(node)
    node.close()
    # The last batch was not written completely.
    path.write_bytes(path.read_bytes()[:-7])
    for name in ("checkpoint", "recovery"):
        for file in path.parent.glob(f"*{name}*"):
            file.unlink()
    node._open()
    recorder = Recorder(node)
    await recorder.record("after")
    await recorder.close()
    chain = chain_of(node)
    assert (chain.record_count, chain.break_count) == (6, 0)


def change(records: list[Record]) -> list[Record]:
    value = (records[3].value or b"").replace(b"t3", b"t9")
    assert value != records[3].value
    return [*records[:3], records[3]._replace(value=value), *records[4:]]


def change_header(records: list[Record]) -> list[Record]:
    headers = [(name, b"topic.deleted" if name == "ce_type" else value) for name, value in records[3].headers]
    return [*records[:3], records[3]._replace(headers=headers), *records[4:]]


def change_time(records: list[Record]) -> list[Record]:
    return [*records[:3], records[3]._replace(timestamp_ms=records[3].timestamp_ms + 1), *records[4:]]


def strip(records: list[Record]) -> list[Record]:
    headers = [one for one in records[3].headers if one[0] != "previous-sha256"]
    return [*records[:3], records[3]._replace(headers=headers), *records[4:]]


@pytest.mark.parametrize(
    ("tamper", "offset"),
    [
        (change, 4),
        (change_header, 4),
        (change_time, 4),
        (strip, 3),
        # Without the record at offset 3.
        (lambda records: [*records[:3], *records[4:]], 3),
        (lambda records: [*records[:2], records[3], records[2], *records[4:]], 2),
        (lambda records: [*records[:3], records[3], records[3], *records[4:]], 4),
        (lambda records: [*records[:3], Record(None, b"{}", 1, []), *records[3:]], 3),
    ],
    ids=["changed", "header", "time", "no hash", "removed", "reordered", "doubled", "inserted"],
)
@in_loop
async def test_every_change_is_found_with_its_offset(
    node: QuietNode, tamper: Callable[[list[Record]], list[Record]], offset: int
) -> None:
    records = await recorded(node)
    write_records(segment_of(node), records)
    assert chain_of(node).break_count == 0
    write_records(segment_of(node), tamper(records))
    chain = chain_of(node)
    assert chain.findings[0].offset == offset
    assert f"first breaks at offset {offset}" in chain.text()


@in_loop
async def test_retention_may_cut_the_beginning(node: QuietNode) -> None:
    records = await recorded(node)
    write_records(segment_of(node), records[2:])
    chain = chain_of(node)
    assert (chain.record_count, chain.break_count) == (4, 0)


@in_loop
async def test_records_of_older_versions_have_no_hash(node: QuietNode) -> None:
    (topic,) = await node.topics.create([NewTopic(AUDIT_TOPIC, 1, {})])
    stream = topic.stream()
    for number in range(3):
        batch = build_batch([Record(None, b'{"webhook":"%d"}' % number, node.clock.now_ms())])
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        stream.append(memoryview(batch), check_batch(memoryview(batch)), done.set_result)
        assert not isinstance(await done, KafkaError)
    recorder = Recorder(node)
    await recorder.record("new")
    await recorder.close()
    records = stored_records(segment_of(node))
    assert previous_hash(records[3]) == record_hash(records[2]).hex()
    assert chain_of(node).break_count == 0
    assert dict(topic.configs)["retention.ms"] == str(CONFIG.retention_ms)


@in_loop
async def test_a_failed_append_is_repeated_and_the_chain_stays_whole(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.01)
    recorder = Recorder(node)
    await recorder.record("first")
    stream = recorder.writer._log
    assert stream is not None
    failing = _FailingLog(stream, failures=2)
    recorder.writer._log = failing  # type: ignore[assignment]
    monkeypatch.setattr(type(node.topics.get(AUDIT_TOPIC)), "stream", lambda self, index=0: failing)
    await recorder.record("second", "third")
    await recorder.close()
    chain = chain_of(node)
    # The first failure stored the record nevertheless, so it was written twice, with the same id.
    records = stored_records(segment_of(node))
    ids = [dict(record.headers)["ce_id"] for record in records]
    assert (chain.record_count, chain.break_count) == (4, 0)
    assert ids[1] == ids[2]
    assert recorder.queue.dropped == 0


@in_loop
async def test_entries_that_cannot_be_written_before_the_end_are_counted_as_lost(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.01)
    recorder = Recorder(node)
    await recorder.record("first")
    stream = recorder.writer._log
    assert stream is not None
    failing = _FailingLog(stream, failures=10**9)
    recorder.writer._log = failing  # type: ignore[assignment]
    monkeypatch.setattr(type(node.topics.get(AUDIT_TOPIC)), "stream", lambda self, index=0: failing)
    recorder.queue.changed("topic.created", TOPIC, "lost")
    await recorder.close()
    assert recorder.queue.dropped == 1


class _FailingLog:
    """A log whose next appends fail: the first one after it has stored its batch, the others before."""

    def __init__(self, log: StreamLog, failures: int) -> None:
        self._log = log
        self._left = self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, batch: memoryview, header: Any, appended: Callable[[Any], None]) -> None:
        if not self._left:
            self._log.append(batch, header, appended)
            return
        self._left -= 1
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "planted")
        if self._left == self._failures - 1 and self._failures == 2:
            self._log.append(batch, header, lambda outcome: appended(error))
        else:
            appended(error)

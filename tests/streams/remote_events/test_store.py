"""The event store of a bridge: shared transactions, takeovers, outcomes that are not known, and what a start finds.

Every test runs over a kwire server and, with full effort, over three nodes of an Apache Kafka.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire.bridge.process import Bridge
from kwire.errors import (
    ErrorCode,
    EventStoreUnavailable,
    KafkaError,
    OffsetOutOfRange,
    TopicNotFound,
    WrongExpectedVersion,
)
from kwire.kafka_client.admin import Admin
from kwire.streams.events.event import Event
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NotReady, StreamLog
from kwire.streams.remote import agreement
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import MISSING_MAX, RemoteLogs
from kwire.streams.remote.transactions.writer import TransactionBatch, UnknownTransaction
from kwire.streams.remote_events import journal as journal_module
from kwire.streams.remote_events.journal_state import JournalState
from kwire.streams.remote_events.store import RemoteEventStore
from storage.batch.record_batch import Record
from tests.support.engines import (
    OVER_APACHE_PARAM,
    OVER_KWIRE,
    Engine,
    begin_append,
    running_bridge,
    stream_topic,
)
from tests.support.event_doors import make_topics
from tests.support.event_store import draft
from tests.support.node import in_uvloop
from tests.support.remote_worlds import until

pytestmark = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)

JOURNAL = "__kwire_event_journal"
READS_MAX = 10_000


def store_of(bridge: Bridge) -> RemoteEventStore:
    return bridge._event_store.store


async def publish(bridge: Bridge, *topics: str, **options: Any) -> list[str]:
    """Publish one event to each topic, in one commit."""
    committed = await store_of(bridge).commit([draft(topic, topic) for topic in topics], **options)
    return list(committed.event_ids)


@asynccontextmanager
async def bridge_in(engine: Engine, directory: Path, *settings: str) -> AsyncIterator[Bridge]:
    assert engine.upstream is not None
    async with running_bridge(directory, engine.upstream, *settings) as bridge:
        yield bridge


def copy_of(directory: Path, name: str) -> Path:
    """The data directory of a bridge, on another machine."""
    return Path(shutil.copytree(directory, directory.parent / name))


async def ids_in(log: StreamLog, number: int = 0) -> list[str]:
    reader = EventReader(log, number)
    found: list[Event] = []
    for _ in range(READS_MAX):
        portion = reader.read()
        if isinstance(portion, NotReady):
            await portion.wait()
        elif portion:
            found += portion
        else:
            return [f"{log.topic}-{one.offset + 1}" for one in found]
    raise AssertionError("the end is never reached")


@in_uvloop
async def test_commits_that_arrive_together_share_transactions(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        found = await asyncio.gather(*(publish(bridge, "one", "two") for _ in range(100)))
        assert found == [[f"one-{number}", f"two-{number}"] for number in range(1, 101)]
        facts = store_of(bridge).facts()
        assert (facts.commits, facts.events, facts.waiting_commits) == (100, 200, 0)
        assert facts.transactions <= 3
        assert await ids_in(store_of(bridge).event_topic("two").stream()) == [f"two-{one}" for one in range(1, 101)]


@in_uvloop
async def test_a_commit_of_a_shared_transaction_is_refused_alone(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one")
        store = store_of(bridge)

        def expecting(version: int) -> Any:
            return store.commit([draft("one", version, expected_version=version)])

        outcomes = await asyncio.gather(expecting(-1), expecting(0), expecting(0), expecting(1), return_exceptions=True)
        assert [getattr(one, "event_ids", None) for one in outcomes] == [["one-1"], ["one-2"], None, ["one-3"]]
        assert isinstance(outcomes[2], WrongExpectedVersion)


@in_uvloop
async def test_a_bridge_with_the_same_data_fences_the_first_one(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_in(engine, tmp_path / "a") as first:
        await make_topics(first, "one", "two")
        copied = copy_of(tmp_path / "a", "b")
        assert await publish(first, "one", "two", idempotency_key="k") == ["one-1", "two-1"]
        # Its data is older than the events: numbers and keys come from the journal.
        async with bridge_in(engine, copied) as second:
            assert await publish(second, "one", "two", idempotency_key="k") == ["one-1", "two-1"]
            assert await publish(second, "one") == ["one-2"]
            for _ in range(2):
                with pytest.raises(EventStoreUnavailable, match=r"another process has taken over.*restart this bridge"):
                    await publish(first, "one")
            with pytest.raises(EventStoreUnavailable):
                store_of(first).event_topic("one")
            assert "another process" in store_of(first).facts().problem
            assert not store_of(first).facts().is_open
            assert await publish(second, "two") == ["two-2"]
            assert await ids_in(store_of(second).event_topic("one").stream()) == ["one-1", "one-2"]
    async with bridge_in(engine, tmp_path / "a") as again:
        assert await publish(again, "one", "two") == ["one-3", "two-3"]


@in_uvloop
async def test_a_bridge_that_publishes_nothing_notices_that_it_was_fenced(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "CHECK_SECONDS", 0.05)
    async with bridge_in(engine, tmp_path / "a") as first:
        await make_topics(first, "one")
        await publish(first, "one")
        woken: list[StreamLog] = []
        log = store_of(first).event_topic("one").stream()
        log.watch(woken.append)
        async with bridge_in(engine, copy_of(tmp_path / "a", "b")) as second:
            await until(lambda: woken)
            with pytest.raises(KafkaError, match="another process has taken over"):
                log.read(0, 1000)
            assert await publish(second, "one") == ["one-2"]


@in_uvloop
async def test_the_journal_of_another_data_directory_is_not_taken_over(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as first, bridge_in(engine, tmp_path / "b") as second:
        await make_topics(first, "one")
        await publish(first, "one")
        with pytest.raises(EventStoreUnavailable, match="belong to another bridge"):
            await make_topics(second, "two")
        with pytest.raises(EventStoreUnavailable, match="belong to another bridge"):
            await store_of(second).journal()
        with pytest.raises(TopicNotFound):
            store_of(second).event_topic("two")
        assert await publish(first, "one") == ["one-2"]
    async with bridge_in(engine, tmp_path / "c", "kwire.bridge.events.topic=__kwire_other_journal") as third:
        await make_topics(third, "three")
        assert await publish(third, "three") == ["three-1"]


async def delete_topic(engine: Engine, name: str) -> None:
    async with bridge_in(engine, engine.directory / "janitor") as bridge:
        await Admin(bridge._cluster).delete_topic(name)


@pytest.mark.parametrize("is_stored", [True, False])
@in_uvloop
async def test_the_journal_tells_what_happened_to_an_unknown_transaction(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        await publish(bridge, "one")
        opened = store_of(bridge)._opened
        assert opened is not None
        writer = opened.journal._writer
        write = writer.write

        async def lose_answer(batches: list[TransactionBatch]) -> list[int]:
            monkeypatch.setattr(writer, "write", write)
            if is_stored:
                await write(batches)
            raise UnknownTransaction(writer.transactional_id, "the answer was lost")

        monkeypatch.setattr(writer, "write", lose_answer)
        if is_stored:
            assert await publish(bridge, "one", "two") == ["one-2", "two-1"]
        else:
            with pytest.raises(KafkaError, match="not stored"):
                await publish(bridge, "one", "two")
            assert await publish(bridge, "one", "two") == ["one-2", "two-1"]
        assert await publish(bridge, "one") == ["one-3"]
        assert await ids_in(store_of(bridge).event_topic("one").stream()) == ["one-1", "one-2", "one-3"]
        assert await ids_in(store_of(bridge).event_topic("two").stream()) == ["two-1"]


@in_uvloop
async def test_events_of_another_bridge_do_not_make_an_unknown_transaction_stored(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_in(engine, tmp_path / "a") as first:
        await make_topics(first, "one")
        opened = store_of(first)._opened
        assert opened is not None
        copied = copy_of(tmp_path / "a", "b")

        async def lose_ownership(batches: list[TransactionBatch]) -> list[int]:
            async with bridge_in(engine, copied) as second:
                assert await publish(second, "one") == ["one-1"]
            raise UnknownTransaction("w", "the answer was lost")

        with monkeypatch.context() as patched:
            patched.setattr(opened.journal._writer, "write", lose_ownership)
            with pytest.raises(KafkaError, match="not stored"):
                await publish(first, "one")
        with pytest.raises(EventStoreUnavailable):
            await publish(first, "one")


@in_uvloop
async def test_a_start_without_needed_records_of_the_journal_is_refused(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as first:
        await make_topics(first, "one")
        copied = copy_of(tmp_path / "a", "b")
        await publish(first, "one")
        await publish(first, "one")
        opened = store_of(first)._opened
        assert opened is not None
        await Admin(first._cluster).delete_records(JOURNAL, 0, opened.journal.state.next_offset)
        # What the checkpoint has is not needed in the journal.
        assert await publish(first, "one") == ["one-3"]
    async with bridge_in(engine, tmp_path / "a") as again:
        assert await publish(again, "one") == ["one-4"]
        journal = await store_of(again).journal()
        await journal.ready()
        assert journal.bounds().start == 2
        with pytest.raises(OffsetOutOfRange):
            journal.read(1, 1000)
    async with bridge_in(engine, copied) as late:
        with pytest.raises(EventStoreUnavailable, match="were deleted on the cluster"):
            store_of(late).event_topic("one")
        assert "were deleted" in store_of(late).facts().problem
        # Rooms and topics over HTTP do not write to event topics in the meantime.
        topic = await stream_topic(late, "one")
        outcome = await begin_append(topic.stream(), [Record(None, b"1", 1000)])
        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.POLICY_VIOLATION


@in_uvloop
async def test_a_journal_that_is_deleted_ends_the_event_store(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one")
        await publish(bridge, "one")
        await Admin(bridge._cluster).delete_topic(JOURNAL)
        with pytest.raises((EventStoreUnavailable, KafkaError)):
            await publish(bridge, "one")
        with pytest.raises(EventStoreUnavailable, match="the event journal was deleted"):
            await publish(bridge, "one")


@in_uvloop
async def test_entries_of_topics_that_were_deleted_meanwhile_are_removed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "DELETION_SECONDS", 0.1)
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        await publish(bridge, "one", "two")
    await delete_topic(engine, "one")
    async with bridge_in(engine, tmp_path / "a") as bridge:
        store = store_of(bridge)
        with pytest.raises(TopicNotFound):
            store.event_topic("one")
        assert await publish(bridge, "two") == ["two-2"]
        await make_topics(bridge, "one")
        assert await publish(bridge, "one", "two") == ["one-1", "two-3"]
        assert len(list(bridge._metastore.entries("bridge/event-topics/"))) == 2
        opened = store._opened
        assert opened is not None
        assert len(opened.journal.state.ends) == 2


@in_uvloop
async def test_a_start_does_not_believe_one_broker_that_lags_behind(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that is asked for leaders does not know a topic for a while."""
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        await publish(bridge, "one", "two")
    open_log, misses = RemoteLogs.open, iter(range(2 * MISSING_MAX))

    async def lagging(logs: RemoteLogs, topic: str, partition: int = 0) -> RemoteLog:
        if topic == "one" and next(misses, None) is not None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return await open_log(logs, topic, partition)

    monkeypatch.setattr(RemoteLogs, "open", lagging)
    async with bridge_in(engine, tmp_path / "a") as bridge:
        assert await publish(bridge, "one", "two") == ["one-2", "two-2"]
        await make_topics(bridge, "three")
        assert await publish(bridge, "one") == ["one-3"]


@in_uvloop
async def test_a_topic_that_only_seemed_to_be_deleted_is_opened_again(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        store = store_of(bridge)
        await make_topics(bridge, "one")
        await publish(bridge, "one")
        former = store.event_topic("one")
        # What several answers of one broker that lags behind lead to.
        bridge._cluster.metadata.missing["one"] = MISSING_MAX
        store._logs._check_topics(frozenset({"one"}))
        assert former.is_gone
        assert store.topics.name_of(former.topic_id) == "one"
        await make_topics(bridge, "two")
        assert await publish(bridge, "one") == ["one-2"]
        assert await ids_in(store.event_topic("one").stream()) == ["one-1", "one-2"]


@in_uvloop
async def test_an_end_that_the_journal_does_not_have_is_that_of_the_topic(engine: Engine, tmp_path: Path) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        topics = store_of(bridge).topics
        await make_topics(bridge, "one", "two")
        await asyncio.gather(*(publish(bridge, "one") for _ in range(3)))
        await ids_in(topics.find("one").stream())
        state = JournalState(bytes(16), None)
        await topics.open_all(state)
        assert state.ends == {topics.find("one").topic_id: 3}
        assert topics.find("one").stream().bounds() == (0, 3, 3)


@in_uvloop
async def test_after_a_failed_start_no_topic_is_being_opened(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        store = store_of(bridge)
        await make_topics(bridge, "one", "two")
        before, open_log = store.event_topic("two"), RemoteLogs.open
        may_open, ended = asyncio.Event(), asyncio.Event()

        async def failing(logs: RemoteLogs, topic: str, partition: int = 0) -> RemoteLog:
            if topic == "one":
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "not now")
            try:
                await may_open.wait()
                return await open_log(logs, topic, partition)
            finally:
                ended.set()

        monkeypatch.setattr(RemoteLogs, "open", failing)
        with pytest.raises(KafkaError, match="not now"):
            await store.topics.open_all(JournalState(bytes(16), None))
        may_open.set()
        assert ended.is_set()
        assert store.event_topic("two") is before

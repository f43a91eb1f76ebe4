"""The event store of a bridge when requests of its transactions fail: what is stored is neither lost nor stored twice.

Every test runs over a kwire server and, with full effort, over three nodes of an Apache Kafka. The requests are real;
the tests change what the bridge learns of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.bridge.process import Bridge
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.errors import LoginRefused, Unreachable
from kwire.kafka_client.link import Link
from kwire.kafka_client.metadata import NO_LEADER, Leader
from kwire.streams.events.reading import read_events
from kwire.streams.remote.transactions.partition_writes import BatchRefused
from kwire.streams.remote.transactions.writer import TransactionBatch
from kwire.streams.remote_events import journal as journal_module
from kwire.streams.remote_events import late_topics
from kwire.streams.remote_events.journal import Journal
from kwire.wire.messages.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from kwire.wire.messages.end_txn import END_TXN
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID
from kwire.wire.schema import Api
from tests.streams.remote_events.test_store import bridge_in, ids_in, publish, store_of
from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.event_doors import make_topics
from tests.support.node import in_uvloop
from tests.support.remote_worlds import until

pytestmark = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)

Send = Callable[[], Awaitable[Any]]
Fault = Callable[[Send], Awaitable[Any]]


class Faults:
    """What happens to the next requests of an API, one fault for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned: dict[Api, list[Fault]] = {}
        request = Link.request

        async def changed(link: Link, api: Api, message: Any, **options: Any) -> Any:
            faults = self.planned.get(api)
            if not faults:
                return await request(link, api, message, **options)
            return await faults.pop(0)(lambda: request(link, api, message, **options))

        monkeypatch.setattr(Link, "request", changed)

    def plan(self, api: Api, *faults: Fault) -> None:
        self.planned[api] = list(faults)

    def check(self) -> None:
        assert not any(self.planned.values())


async def lost_answer(send: Send) -> Any:
    await send()
    raise Unreachable("the connection broke before the answer")


async def lost_request(send: Send) -> Any:
    raise Unreachable("the connection broke before the request arrived")


async def login_refused(send: Send) -> Any:
    raise LoginRefused("the password was changed")


def answered(code: ErrorCode, *, is_carried_out: bool) -> Fault:
    async def fault(send: Send) -> Any:
        if not is_carried_out:
            return END_TXN.response(error_code=code)
        response = await send()
        response.error_code = code
        return response

    return fault


async def unknown_topics(send: Send) -> Any:
    response = await send()
    for topic in response.results_by_topic_v3_and_below:
        for one in topic.results_by_partition:
            one.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response


def journal_of(bridge: Bridge) -> Journal:
    opened = store_of(bridge)._opened
    assert opened is not None
    return opened.journal


async def record_count(bridge: Bridge, topic: str) -> int:
    """How many committed records a Kafka client finds in a topic."""
    log = await bridge._logs.open(topic)
    async with asyncio.timeout(30):
        await log.ask_bounds(is_exact=True)
        while log.committed_end < log.high_watermark:
            await log.ask_bounds(is_exact=True)
    return len(await read_events(log, 0, 1000))


STORED = [
    pytest.param([lost_answer, login_refused], [], id="login refused"),
    pytest.param([lost_answer, login_refused], [login_refused, login_refused], id="login refused repeatedly"),
    pytest.param(
        [
            answered(ErrorCode.COORDINATOR_NOT_AVAILABLE, is_carried_out=True),
            answered(ErrorCode.INVALID_TXN_STATE, is_carried_out=True),
        ],
        [],
        id="coordinator not available",
    ),
    pytest.param(
        [
            answered(ErrorCode.NOT_COORDINATOR, is_carried_out=True),
            answered(ErrorCode.INVALID_PRODUCER_EPOCH, is_carried_out=True),
        ],
        [],
        id="coordinator moved",
    ),
    pytest.param([answered(ErrorCode.UNKNOWN_SERVER_ERROR, is_carried_out=True)], [], id="server error"),
]


@pytest.mark.parametrize(("ends", "inits"), STORED)
@in_uvloop
async def test_a_commit_of_unknown_outcome_that_is_stored_is_acknowledged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[Fault], inits: list[Fault]
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        assert await publish(bridge, "one") == ["one-1"]
        faults = Faults(monkeypatch)
        faults.plan(END_TXN, *ends)
        faults.plan(INIT_PRODUCER_ID, *inits)
        assert await publish(bridge, "one", "two") == ["one-2", "two-1"]
        faults.check()
        assert await publish(bridge, "one") == ["one-3"]
        assert await ids_in(store_of(bridge).event_topic("one").stream()) == ["one-1", "one-2", "one-3"]
        assert await record_count(bridge, "one") == 3


@pytest.mark.parametrize("inits", [[], [login_refused, login_refused]])
@in_uvloop
async def test_a_commit_of_unknown_outcome_that_is_not_stored_is_aborted(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inits: list[Fault]
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one")
        faults = Faults(monkeypatch)
        faults.plan(END_TXN, lost_request, login_refused)
        faults.plan(INIT_PRODUCER_ID, *inits)
        with pytest.raises(KafkaError, match="the events are not stored"):
            await publish(bridge, "one")
        faults.check()
        assert await publish(bridge, "one") == ["one-1"]
        assert await ids_in(store_of(bridge).event_topic("one").stream()) == ["one-1"]
        assert await record_count(bridge, "one") == 1


@in_uvloop
async def test_a_coordinator_that_does_not_know_a_new_topic_yet_is_asked_again(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one")
        faults = Faults(monkeypatch)
        faults.plan(ADD_PARTITIONS_TO_TXN, unknown_topics, unknown_topics)
        assert await publish(bridge, "one") == ["one-1"]
        faults.check()
        assert store_of(bridge).facts().problem == ""


@in_uvloop
async def test_a_topic_without_a_leader_does_not_hold_up_others(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "OTHERS_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(late_topics, "RETRY_WAIT_SECONDS", 0.05)
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        await publish(bridge, "one", "two")
        metadata = bridge._cluster.metadata
        leader = metadata.leader
        is_down = True

        def leader_of(topic: str, partition: int) -> Leader:
            return NO_LEADER if is_down and topic == "one" else leader(topic, partition)

        monkeypatch.setattr(metadata, "leader", leader_of)
        journal = journal_of(bridge)
        commits = [publish(bridge, *topics) for topics in (["one"], ["two"], ["one", "two"], ["two"])]
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        assert outcomes[1::2] == [["two-2"], ["two-3"]]
        for refused in outcomes[::2]:
            assert isinstance(refused, KafkaError)
            assert refused.code is ErrorCode.REQUEST_TIMED_OUT
        # The next ones are refused without a transaction.
        aborted_count = journal._writer.aborted_count
        refused, stored = await asyncio.gather(publish(bridge, "one"), publish(bridge, "two"), return_exceptions=True)
        assert isinstance(refused, KafkaError)
        assert stored == ["two-4"]
        assert journal._writer.aborted_count == aborted_count
        monkeypatch.setattr(late_topics, "REFUSED_SECONDS", 0.0)
        journal._late_topics.add([store_of(bridge).event_topic("one").topic_id], refused, 0.0)
        with pytest.raises(KafkaError, match="not stored in time"):
            await publish(bridge, "one")
        assert journal._writer.aborted_count == aborted_count + 1
        is_down = False
        assert await publish(bridge, "one", "two") == ["one-2", "two-5"]
        assert journal._late_topics.wait_seconds([store_of(bridge).event_topic("one").topic_id], 7.0) == 7.0


@in_uvloop
async def test_commits_that_are_tried_again_are_answered_when_the_bridge_stops(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bridge_in(engine, tmp_path / "a") as bridge:
        await make_topics(bridge, "one", "two")
        journal = journal_of(bridge)
        closing: list[asyncio.Task[None]] = []

        async def refuse_while_closing(batches: list[TransactionBatch], others_wait_seconds: float) -> list[int]:
            closing.append(asyncio.create_task(journal.close()))
            await until(lambda: journal._failure is not None)
            raise BatchRefused([1], KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))

        monkeypatch.setattr(journal._writer, "write", refuse_while_closing)
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(publish(bridge, "one"), publish(bridge, "two"), return_exceptions=True)
            await closing[0]
        assert [str(one) for one in outcomes] == ["too large", "the bridge is stopping"]

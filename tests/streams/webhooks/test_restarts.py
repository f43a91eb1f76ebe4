"""State that survives a stop, a crash and a disk that refuses writes."""

import asyncio
from typing import Any

import pytest

from kwire.broker.partition import Partition
from kwire.broker.topics.catalogue import WEBHOOKS_TOPIC
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.webhooks import state_log
from kwire.streams.webhooks.definition import parse_webhook
from kwire.streams.webhooks.delivery.sender import Response
from storage.batch.record_batch import BatchHeader
from storage.errors import StorageFailed
from tests.support.event_store import draft
from tests.support.hooked_node import FakeReceiver, Hooked, event_id_of, hooked, until
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of


async def publish(node: QuietNode, count: int = 1) -> None:
    await node.event_store.publish([draft("orders", {"n": number}) for number in range(count)])


async def prepare(node: QuietNode) -> None:
    await node.event_store.open()
    await node.create_event_topic("orders")


async def restart(node: QuietNode) -> None:
    await node.event_store.close()
    node.restart()
    await node.event_store.open()


async def opened(node: QuietNode, receiver: FakeReceiver, **config: Any) -> Hooked:
    one = Hooked(node, receiver, **config)
    await one.webhooks.open()
    return one


@pytest.mark.proves("S2-42")
@in_loop
async def test_webhooks_and_their_places_survive_a_clean_stop(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        made = await one.register(
            types=["made"],
            filter="data.n >= 0",
            ratePerSecond=1000,
            headers={"X-Key": "k"},
            body="structured",
            mode="parallel",
            parallel=3,
            description="all of it",
        )
        await publish(node, 3)
        await one.receiver.has(3)
        await until(lambda: made.delivered_count == 3)
    await restart(node)
    async with hooked(node) as one:
        found = one.webhooks.get(made.webhook_id)
        assert found.definition == made.definition
        assert found.delivered_count == 3
        attempts = one.webhooks.attempts(made.webhook_id)
        assert [each.number for each in attempts] == [2, 1, 0]
        assert {each.offset for each in attempts} == {2, 1, 0}
        await publish(node)
        await one.receiver.has(1)
        assert one.receiver.ids == ["orders-4"]
        await until(lambda: found.delivered_count == 4)
        assert one.webhooks.attempts(made.webhook_id, limit=1)[0].number == 3


@in_loop
async def test_after_a_crash_nothing_is_missing_and_at_most_the_last_is_sent_twice(node: QuietNode) -> None:
    await prepare(node)
    receiver = FakeReceiver()
    one = await opened(node, receiver)
    webhook = await one.register()
    await publish(node, 5)
    await receiver.has(5)
    one.crash()
    await restart(node)
    await publish(node, 2)
    async with hooked(node, receiver) as one:
        await until(lambda: one.webhooks.get(webhook.webhook_id).cursors["orders"].position == 7)
        assert set(receiver.ids) == {f"orders-{number}" for number in range(1, 8)}
        # Nothing of the first run was stored, so all events are delivered again, in order.
        again = receiver.ids[5:]
        assert again == sorted(again)


@pytest.mark.proves("S2-43")
@pytest.mark.parametrize("mode", ["ordered", "parallel"])
@in_loop
async def test_a_retry_keeps_its_attempts_and_its_time_over_a_restart(node: QuietNode, mode: str) -> None:
    await prepare(node)
    receiver = FakeReceiver()
    receiver.reply = lambda request: Response(500)
    one = await opened(node, receiver, retry_schedule_ms=(5000, 60_000))
    webhook = await one.register(mode=mode)
    await publish(node)
    await until(lambda: webhook.failed_count == 1)
    await one.close()
    await restart(node)
    async with hooked(node, receiver, retry_schedule_ms=(5000, 60_000)) as one:
        found = one.webhooks.get(webhook.webhook_id)
        assert found.failed_count == 1
        node.clock.advance(4000)
        assert len(receiver.requests) == 1
        node.clock.advance(1000)
        await receiver.has(2)
        await until(lambda: found.failed_count == 2)
        node.clock.advance(60_000)
        await until(lambda: found.dead)
        assert found.dead["orders", 0].attempts == 3
        assert len(receiver.requests) == 3


@in_loop
async def test_dead_letters_and_states_survive(node: QuietNode) -> None:
    await prepare(node)
    receiver = FakeReceiver()
    receiver.reply = lambda request: Response(500 if event_id_of(request) == "orders-1" else 200)
    async with hooked(node, receiver, retry_schedule_ms=()) as one:
        webhook = await one.register()
        await publish(node, 2)
        await until(lambda: webhook.delivered_count == 1)
        await one.webhooks.pause(webhook.webhook_id, "for a while")
    await restart(node)
    async with hooked(node, receiver) as one:
        found = one.webhooks.get(webhook.webhook_id)
        assert (found.definition.state, found.definition.reason) == ("paused", "for a while")
        assert [str(event_id) for event_id, _ in one.webhooks.dead_letters(webhook.webhook_id)] == ["orders-1"]


@in_loop
async def test_a_removed_webhook_stays_removed_and_leaves_no_records(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook = await one.register()
        failing = await one.register(policy="remove")
        one.receiver.reply = lambda request: Response(500)
        await publish(node)
        await until(lambda: len(one.webhooks) == 1)
        assert failing.is_removed
        await one.webhooks.remove(webhook.webhook_id)
    await restart(node)
    async with hooked(node) as one:
        assert len(one.webhooks) == 0
        assert await one.webhooks._state.open() == {}


@in_loop
async def test_records_of_a_webhook_whose_end_was_interrupted_go_at_the_next_start(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook = await one.register()
        await publish(node)
        await until(lambda: webhook.delivered_count == 1)
    await restart(node)
    one = Hooked(node, FakeReceiver())
    await one.webhooks._definitions.remove(webhook.webhook_id)
    await one.webhooks.open()
    await one.close()
    await restart(node)
    one = Hooked(node, FakeReceiver())
    assert await one.webhooks._state.open() == {}


@in_loop
async def test_a_topic_added_again_begins_where_it_was_added_even_after_a_crash(node: QuietNode) -> None:
    await prepare(node)
    await node.create_event_topic("users")
    receiver = FakeReceiver()
    one = await opened(node, receiver)
    webhook = await one.register("orders", "users")
    await publish(node, 3)
    await receiver.has(3)
    await until(lambda: webhook.cursors["orders"].position == 3)
    await one.webhooks._flush_state(webhook)
    await one.webhooks.change(webhook.webhook_id, parse_webhook({"topics": {"users": None}}, is_new=False))
    await one.webhooks.change(webhook.webhook_id, parse_webhook({"topics": {"orders": None}}, is_new=False))
    one.crash()
    await restart(node)
    receiver.requests.clear()
    async with hooked(node, receiver):
        await receiver.has(3)
        assert receiver.ids == ["orders-1", "orders-2", "orders-3"]


@pytest.mark.proves("S2-17")
@in_loop
async def test_in_memory_only_nothing_is_written_down(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node, is_persisted=False) as one:
        webhook = await one.register()
        await publish(node, 2)
        await until(lambda: webhook.delivered_count == 2)
        assert node.topics.get(WEBHOOKS_TOPIC) is None
    await restart(node)
    async with hooked(node, is_persisted=False) as one:
        assert len(one.webhooks) == 0


@in_loop
async def test_what_the_disk_refuses_is_written_down_later(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepare(node)
    receiver = FakeReceiver()
    one = await opened(node, receiver)
    webhook = await one.register()
    await one.webhooks._flush_state(webhook)
    topic = node.topics.get(WEBHOOKS_TOPIC)
    assert topic is not None

    def refuse(*given: object) -> None:
        raise StorageFailed("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(type(log_of(topic.partitions[0])), "append", refuse)
        webhook.send_again("orders", 0, node.clock.now_ms())
        with pytest.raises(KafkaError):
            await one.webhooks._flush_state(webhook)
    await one.webhooks._flush_state(webhook)
    records = (await one.webhooks._state.open())[webhook.webhook_id]
    assert ("r", "orders", 0) in records
    await one.close()


@in_loop
async def test_when_places_cannot_be_read_webhooks_wait_for_somebody(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(node)
    async with hooked(node) as one:
        webhook = await one.register()
    await restart(node)
    await publish(node)
    receiver = FakeReceiver()
    one = Hooked(node, receiver)

    async def fail() -> None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")

    monkeypatch.setattr(one.webhooks._state, "open", fail)
    await one.webhooks.open()
    found = one.webhooks.get(webhook.webhook_id)
    assert found.definition.state == "paused"
    assert "damaged" in found.definition.reason
    await one.webhooks.resume(webhook.webhook_id)
    await receiver.has(1)
    await one.close()


@in_loop
async def test_the_state_topic_is_internal_and_compacted(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        await one.register()
        topic = node.topics.get(WEBHOOKS_TOPIC)
        assert topic is not None
        assert topic.is_internal
        assert topic.is_hidden
        assert topic.settings.is_compacted


@in_loop
async def test_to_settle_ends_though_others_never_stop_changing(node: QuietNode) -> None:
    """A request waits for its answer while other webhooks are busy all the time."""
    await prepare(node)
    async with hooked(node) as one:
        asking, *busy = [await one.register() for _ in range(3)]
        await publish(node, 1)
        await until(lambda: all(consumer.delivered_count == 1 for consumer in (asking, *busy)))
        asked = asyncio.ensure_future(one.webhooks.resend(asking.webhook_id, [EventId("orders", 0)]))
        while not asked.done():
            for consumer in busy:
                consumer.send_again("orders", 0, node.clock.now_ms() + 3_600_000)
                one.webhooks._state.enqueue(consumer)
            await asyncio.sleep(0)
        assert asked.result() == 1


@in_loop
async def test_records_of_a_removed_webhook_go_in_portions(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepare(node)
    monkeypatch.setattr(state_log, "BATCH_RECORDS", 3)
    receiver = FakeReceiver()
    receiver.reply = lambda request: Response(500)
    async with hooked(node, receiver, retry_schedule_ms=()) as one:
        webhook = await one.register()
        await publish(node, 10)
        await until(lambda: len(webhook.dead) == 10)
        await one.webhooks._flush_state(webhook)
        topic = node.topics.get(WEBHOOKS_TOPIC)
        assert topic is not None
        sizes: list[int] = []
        append = type(topic.partitions[0]).append

        def counted(self: Partition, batch: memoryview, header: BatchHeader, *rest: Any) -> object:
            sizes.append(header.record_count)
            return append(self, batch, header, *rest)

        monkeypatch.setattr(type(topic.partitions[0]), "append", counted)
        await one.webhooks.remove(webhook.webhook_id)
        await one.webhooks._state.flush()
        assert max(sizes) <= 3
        assert await one.webhooks._state.open() == {}

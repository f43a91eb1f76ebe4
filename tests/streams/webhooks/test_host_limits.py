"""Limits of concurrent requests in total, per host and per webhook; a waiting delivery does not block others."""

import asyncio

from kwire.streams.webhooks.consumer import Consumer, ConsumerRules
from kwire.streams.webhooks.definition import Definition
from kwire.streams.webhooks.delivery.host_limits import HostLimits
from kwire.streams.webhooks.delivery.retry_schedule import Schedule
from kwire.streams.webhooks.delivery.signing import SigningSecrets
from tests.support.node import in_loop


def webhook(url: str) -> Consumer:
    definition = Definition(webhook_id=url, url=url, topics={}, secrets=SigningSecrets.first())
    return Consumer(definition, ConsumerRules(Schedule((), lambda: 0.5), 1, 1))


class Senders:
    """Tasks that hold a slot until the gate opens."""

    def __init__(self, limits: HostLimits) -> None:
        self.limits = limits
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, *consumers: Consumer) -> None:
        self.tasks += [asyncio.ensure_future(self._send(one)) for one in consumers]

    async def _send(self, consumer: Consumer) -> None:
        async with self.limits.slot(consumer):
            self.begun.append(consumer.webhook_id)
            await self.gate.wait()

    async def settled(self) -> list[str]:
        """The tasks that hold a slot once no more can get one."""
        for _ in range(20):
            await asyncio.sleep(0)
        return sorted(self.begun)

    async def end(self) -> None:
        self.gate.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*self.tasks, return_exceptions=True)
        assert len(self.limits) == 0


@in_loop
async def test_turns_at_one_host_and_in_all_are_bounded() -> None:
    senders = Senders(HostLimits(3, 2))
    one = [webhook(f"https://one.example/{number}") for number in range(4)]
    other = [webhook(f"https://other.example/{number}") for number in range(4)]
    senders.begin(*one, *other)
    assert await senders.settled() == ["https://one.example/0", "https://one.example/1", "https://other.example/0"]
    await senders.end()
    assert len(senders.begun) == 8


@in_loop
async def test_one_webhook_leaves_room_at_its_host_for_others() -> None:
    senders = Senders(HostLimits(100, 4))
    greedy, modest = webhook("https://shared.example/greedy"), webhook("https://shared.example/modest")
    senders.begin(*[greedy] * 10, modest)
    assert await senders.settled() == [greedy.webhook_id, greedy.webhook_id, modest.webhook_id]
    await senders.end()


@in_loop
async def test_ports_are_hosts_of_their_own_and_spelling_makes_none() -> None:
    senders = Senders(HostLimits(100, 1))
    same = [webhook(url) for url in ("https://a.example/", "https://a.example:443/x", "https://A.example/y")]
    senders.begin(*same, webhook("https://a.example:8443/"))
    assert await senders.settled() == ["https://a.example/", "https://a.example:8443/"]
    await senders.end()


@in_loop
async def test_who_gives_up_while_it_waits_or_sends_leaves_its_place() -> None:
    senders = Senders(HostLimits(1, 1))
    first, second, third = (webhook(f"https://one.example/{number}") for number in range(3))
    senders.begin(first, second, third)
    assert await senders.settled() == [first.webhook_id]
    senders.tasks[1].cancel()
    senders.tasks[0].cancel()
    assert await senders.settled() == [first.webhook_id, third.webhook_id]
    await senders.end()

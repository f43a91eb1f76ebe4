"""The limits of a key: events that are counted together, rates with debts, and limits that change."""

import os
import random

import pytest

from kwire.access.keys.key import KeyLimits, NewKey
from kwire.access.principal import KEY, USER, Principal
from kwire.access.usage.client_limits import ClientLimits
from kwire.access.usage.event_allowances import EventLimitReached
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.usage.publish_rates import PublishRates, RateExceeded
from tests.access.usage.test_event_allowances import DAY_MS, allowances
from tests.access.usage.test_event_allowances import KEY as KEY_ID
from tests.support.effort import repetitions
from tests.support.keys import KeyStore
from tests.support.node import in_loop


async def usage_and_limits(store: KeyStore, limits: KeyLimits) -> tuple[KeyUsage, ClientLimits]:
    keys = store.open()
    usage = KeyUsage(store.metastore, store.clock, keys, 1)
    issued = await keys.create(NewKey("acme", limits))
    found = usage.limits_of(Principal(KEY, issued.key.id))
    assert found is not None
    return usage, found


@in_loop
async def test_events_of_one_request_are_counted_or_refused_together(store: KeyStore) -> None:
    counts = allowances(store)
    assert await counts.take(KEY_ID, 10, 7) == (7, 10)
    with pytest.raises(EventLimitReached, match="this request has 4") as refused:
        await counts.take(KEY_ID, 10, 4)
    assert (refused.value.used, refused.value.reset_ms) == (7, store.clock.now_ms() + DAY_MS)
    assert await counts.take(KEY_ID, 10, 3) == (10, 10)
    counts.give_back(KEY_ID, 3)
    assert counts.used(KEY_ID) == 7


@in_loop
async def test_a_client_whose_requests_never_fit_is_set_back_after_24_hours(store: KeyStore) -> None:
    counts = allowances(store)
    await counts.take(KEY_ID, 15, 10)
    with pytest.raises(EventLimitReached):
        await counts.take(KEY_ID, 15, 10)
    store.clock.advance(DAY_MS - 1)
    with pytest.raises(EventLimitReached):
        await counts.take(KEY_ID, 15, 10)
    store.clock.advance(1)
    assert await counts.take(KEY_ID, 15, 10) == (10, 15)


@in_loop
async def test_more_events_at_once_than_the_limit_are_refused_without_a_time(store: KeyStore) -> None:
    counts = allowances(store)
    await counts.take(KEY_ID, 5)
    with pytest.raises(EventLimitReached) as refused:
        await counts.take(KEY_ID, 5, 6)
    assert (refused.value.used, refused.value.resets_at, refused.value.wait_ms) == (1, None, None)
    # The limit was not reached, so nothing is set back.
    store.clock.advance(2 * DAY_MS)
    assert await counts.take(KEY_ID, 5) == (2, 5)


def test_a_request_may_take_more_than_a_second_of_tokens_and_later_ones_wait_for_the_debt() -> None:
    rates = PublishRates()
    rates.take("k", 10, 0.0, 35)
    assert rates.debt_s("k", 0.0) == pytest.approx(2.5)
    with pytest.raises(RateExceeded) as refused:
        rates.take("k", 10, 1.0)
    assert refused.value.wait_s == pytest.approx(1.6)
    assert rates.debt_s("k", 1.0) == pytest.approx(1.5)
    rates.take("k", 10, 2.6)
    assert rates.debt_s("unknown", 0.0) == 0.0


@in_loop
async def test_limits_that_are_changed_act_on_clients_that_are_connected(store: KeyStore) -> None:
    usage, limits = await usage_and_limits(store, KeyLimits())
    assert [limits.is_publishing_limited, limits.admit(1_000_000)] == [False, None]
    (key,) = usage.keys
    await usage.keys.set_limits(key.id, {"max_events": 3, "publish_rate": 2})
    assert limits.is_publishing_limited
    storing = limits.admit(2)
    assert storing is not None
    await storing
    with pytest.raises(RateExceeded):
        limits.admit(1)
    store.clock.advance(1000)
    with pytest.raises(EventLimitReached):
        limits.admit(2)
    await usage.keys.set_limits(key.id, {"max_events": None, "publish_rate": None})
    assert limits.admit(100) is None
    assert limits.admit(0) is None


@in_loop
async def test_only_clients_with_a_key_have_limits(store: KeyStore) -> None:
    usage, _ = await usage_and_limits(store, KeyLimits())
    assert usage.limits_of(Principal(USER, "alice")) is None
    assert usage.limits_of(Principal(KEY, "kwk_unknown")) is None


@in_loop
async def test_a_key_and_its_aliases_share_limits(store: KeyStore) -> None:
    usage, limits = await usage_and_limits(store, KeyLimits(max_events=5))
    (key,) = usage.keys
    alias = await usage.keys.create(NewKey(alias_of=key.id))
    other = usage.limits_of(alias.key.principal)
    assert other is not None
    for one in (limits, other):
        storing = one.admit(2)
        if storing is not None:
            await storing
    with pytest.raises(EventLimitReached):
        limits.admit(2)
    other.give_back(2)
    assert usage.events.used(key.id) == 2


class Twin:
    """The rule of max_events for events that are published together, as the docs state it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.hit_ms: int | None = None

    def take(self, count: int, now_ms: int) -> bool:
        if count > self.limit:
            return False
        if self.used + count > self.limit:
            if self.hit_ms is None:
                self.hit_ms = now_ms
            if now_ms - self.hit_ms < DAY_MS:
                return False
            self.used = 0
        self.used += count
        self.hit_ms = now_ms if self.used == self.limit else None
        return True


@in_loop
async def test_random_numbers_of_events_and_crashes(store: KeyStore) -> None:
    seed = int(os.environ.get("KWIRE_TEST_SEED", random.randrange(2**32)))
    print(f"KWIRE_TEST_SEED={seed}")
    chance = random.Random(seed)
    refused = set_back = 0
    for _ in range(repetitions(quick=20, full=200)):
        store.close()
        store.path.unlink(missing_ok=True)
        limit = chance.choice((1, 7, 100, 5000))
        counts, twin = allowances(store), Twin(limit)
        published = 0  # by the last request
        for _ in range(100):
            action = chance.choices(("publish", "give back", "wait", "crash"), (60, 5, 20, 5))[0]
            if action == "publish":
                count = chance.choice((1, 1, 2, max(limit // 3, 1), limit, limit + 1))
                before, now_ms = twin.used, store.clock.now_ms()
                expected = twin.take(count, now_ms)
                try:
                    await counts.take(KEY_ID, limit, count)
                    is_taken = True
                except EventLimitReached:
                    is_taken = False
                    refused += 1
                assert is_taken == expected, (seed, count, limit)
                set_back += is_taken and twin.used < before
                published = count if is_taken else 0
            elif action == "give back" and published:
                counts.give_back(KEY_ID, published)
                twin.used, twin.hit_ms, published = twin.used - published, None, 0
            elif action == "wait":
                store.clock.advance(chance.choice((1, DAY_MS // 3, DAY_MS)))
            elif action == "crash":
                await counts._writes.idle()
                counts = allowances(store)
                assert twin.used <= counts.used(KEY_ID), (seed, "an event that was published is not counted")
                # What was given back may be counted again, and so is the rest of a block. The twin goes on from there.
                found = counts._counts.get(KEY_ID)
                twin = Twin(limit)
                if found is not None:
                    twin.used, twin.hit_ms = found.used, found._hit_ms
                published = 0
            assert counts.used(KEY_ID) == twin.used, (seed, action)
    print(f"{refused} requests refused, {set_back} counts set back")
    assert refused
    assert set_back

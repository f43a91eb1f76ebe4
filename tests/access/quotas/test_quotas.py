"""Quotas: precedence, checks, storage, and the bounded table of meters."""

import itertools

import pytest

from kwire.access.quotas.connection_rates import IMMEDIATELY, ConnectionRates
from kwire.access.quotas.entities import DEFAULT, QuotaEntity, entity_of, find_limit
from kwire.access.quotas.kinds import QuotaKind
from kwire.access.quotas.meters import IDLE_CHECK_S, IDLE_S, MeterKey, Meters, QuotaWindow
from kwire.access.quotas.quotas import Alteration, Quotas
from kwire.errors import ErrorCode, KafkaError
from tests.support.clock import ManualClock
from tests.support.node import QuietNode, in_loop

Values = dict[QuotaEntity, dict[str, float]]

# Kafka's order, the most specific first.
ORDER = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]
SHARED_BY = [("alice", "app"), ("alice", "app"), ("alice", ""), ("alice", "app"), ("alice", "app"), ("alice", "")] + [
    ("", "app")
] * 2


def test_the_most_specific_quota_applies() -> None:
    everything: Values = {entity: {QuotaKind.PRODUCE: float(number)} for number, entity in enumerate(ORDER)}
    tried = 0
    for count in range(len(ORDER) + 1):
        for chosen in itertools.combinations(range(len(ORDER)), count):
            limits: Values = {ORDER[number]: everything[ORDER[number]] for number in chosen}
            match = find_limit(limits, QuotaKind.PRODUCE, "alice", "app")
            expected = None if not chosen else (float(chosen[0]), *SHARED_BY[chosen[0]])
            assert match == expected
            tried += 1
    assert tried == 256
    print(f"\ncombinations of the 8 levels: {tried}")


def test_quotas_of_other_users_client_ids_and_kinds_do_not_apply() -> None:
    limits: Values = {
        QuotaEntity("bob"): {QuotaKind.PRODUCE: 1.0},
        QuotaEntity(None, "other"): {QuotaKind.PRODUCE: 1.0},
        QuotaEntity("alice"): {QuotaKind.CONSUME: 1.0},
        QuotaEntity(ip=DEFAULT): {QuotaKind.CONNECTION: 1.0},
    }
    assert find_limit(limits, QuotaKind.PRODUCE, "alice", "app") is None


def test_a_client_without_a_client_id() -> None:
    limits: Values = {
        QuotaEntity(None, DEFAULT): {QuotaKind.PRODUCE: 1.0},
        QuotaEntity(DEFAULT): {QuotaKind.CONSUME: 2.0},
    }
    # An empty client id is one of Kafka's. HTTP has none, so only quotas of users apply.
    assert find_limit(limits, QuotaKind.PRODUCE, "alice", "") == (1.0, "", "")
    assert find_limit(limits, QuotaKind.PRODUCE, "alice", None) is None
    assert find_limit(limits, QuotaKind.CONSUME, "alice", None) == (2.0, "alice", "")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("planet", "earth")],
        [("user", "a"), ("user", "b")],
        [("user", "")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("ip", "not-an-address")],
        [("user", "x" * 2000)],
    ],
)
def test_wrong_entities_are_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as raised:
        entity_of(parts)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_entities_have_different_keys() -> None:
    names = ["a", "b/c", "<default>", "user", None]
    entities = {entity_of([("user", one)]) for one in names}
    entities |= {entity_of([("client-id", one)]) for one in names}
    entities |= {entity_of([("user", one), ("client-id", two)]) for one in names for two in names}
    entities |= {entity_of([("ip", one)]) for one in ("::1", "0::1", "127.0.0.1", None)}
    assert len(entities) == 5 + 5 + 25 + 3
    assert len({one.key for one in entities}) == len(entities)


@in_loop
async def test_quotas_survive_a_restart(node: QuietNode) -> None:
    quotas = node.services.quotas
    alice, everybody = entity_of([("user", "alice")]), entity_of([("user", None), ("client-id", None)])
    await quotas.alter([Alteration(alice, {"producer_byte_rate": 1024.0, "request_percentage": 2.5})])
    await quotas.alter([Alteration(everybody, {"consumer_byte_rate": 10.0})])
    await quotas.alter([Alteration(alice, {"request_percentage": None})])
    again = Quotas(node.metastore, node.clock.monotonic)
    assert set(again.entities()) == {alice, everybody}
    assert again.of(alice) == {"producer_byte_rate": 1024.0}
    await again.alter(
        [Alteration(alice, {"producer_byte_rate": None}), Alteration(everybody, {"consumer_byte_rate": None})]
    )
    assert len(Quotas(node.metastore, node.clock.monotonic)) == 0
    assert again.client("alice", "app") is None


@in_loop
async def test_many_entities_are_stored_in_commits_of_bounded_size(node: QuietNode) -> None:
    before = node.metastore.revision
    await node.services.quotas.alter(
        Alteration(entity_of([("user", f"u{number}")]), {"producer_byte_rate": 1.0}) for number in range(250)
    )
    assert node.metastore.revision == before + 3
    assert len(node.services.quotas) == 250


@in_loop
async def test_a_change_is_noticed(node: QuietNode) -> None:
    quotas, calls = node.services.quotas, []
    quotas.listen(lambda: calls.append(quotas.revision))
    assert quotas.client("alice", "app") is None
    alteration = Alteration(entity_of([("client-id", None)]), {"producer_byte_rate": 100.0})
    await quotas.alter([alteration])
    client = quotas.client("alice", "app")
    assert client is not None
    assert client.produced(1001) == 10
    # The same meter is used by all connections of this client id, whoever the user is.
    other = quotas.client("bob", "app")
    assert other is not None
    assert other.produced(0) == 10
    assert (client.fetched(10**9), client.handled(100.0)) == (0, 0)
    await quotas.alter([alteration])
    assert len(calls) == 1, "a change that changes nothing is not one"


def meter_key(number: int) -> MeterKey:
    return MeterKey(QuotaKind.PRODUCE, client_id=str(number))


def test_the_number_of_meters_is_bounded() -> None:
    dropped: list[int] = []
    meters = Meters(QuotaWindow(), lambda: dropped.append(1), meters_max=100)
    for number in range(1000):
        meters.get(meter_key(number), 1.0, float(number))
        meters.get(meter_key(0), 1.0, float(number)).add(1, float(number))
        assert len(meters) <= 100
    # Of the meters that were used last, none was dropped.
    assert meters.get(meter_key(0), 1.0, 1000.0).window.total(999.0) > 0
    assert len(dropped) == 90


def test_idle_meters_are_dropped() -> None:
    meters = Meters(QuotaWindow(), lambda: None)
    meters.get(meter_key(1), 1.0, 0.0)
    meters.get(meter_key(2), 1.0, IDLE_S)
    meters.get(meter_key(3), 1.0, IDLE_S + IDLE_CHECK_S)
    assert [one.key for one in meters.recent(10)] == [meter_key(3), meter_key(2)]


@in_loop
async def test_the_rate_of_connections_of_an_address(node: QuietNode) -> None:
    clock, unlimited = ManualClock(), 2**31 - 1
    quotas = Quotas(node.metastore, clock.monotonic)
    rates = ConnectionRates(quotas, clock.monotonic)
    assert rates.arrive("PLAINTEXT", "10.0.0.1", unlimited, unlimited, unlimited) == IMMEDIATELY
    await quotas.alter([Alteration(entity_of([("ip", "10.0.0.1")]), {"connection_creation_rate": 2.0})])
    served = [rates.arrive("PLAINTEXT", "10.0.0.1", unlimited, unlimited, unlimited) for _ in range(30)]
    assert [one.is_refused for one in served] == [False] * 20 + [True] * 10
    assert served[-1].delay_s == 0.5
    assert not rates.arrive("PLAINTEXT", "10.0.0.2", unlimited, unlimited, unlimited).is_refused


@in_loop
async def test_the_rate_of_connections_of_the_broker_and_of_a_listener(node: QuietNode) -> None:
    clock, unlimited = ManualClock(), 2**31 - 1
    rates = ConnectionRates(Quotas(node.metastore, clock.monotonic), clock.monotonic)
    for _ in range(10):
        assert rates.arrive("A", "h", 1, unlimited, unlimited) == IMMEDIATELY
    assert rates.arrive("A", "h", 1, unlimited, unlimited) == (1.0, False)
    assert rates.arrive("B", "h", unlimited, 1, unlimited) == IMMEDIATELY
    for _ in range(9):
        rates.arrive("B", "h", unlimited, 1, unlimited)
    assert rates.arrive("B", "h", unlimited, 1, unlimited).delay_s == 1.0
    # As in Kafka no delay is longer than one sample, and a rate of 0 delays every connection for that long.
    assert rates.arrive("C", "h", unlimited, 0, unlimited).delay_s == 1.0

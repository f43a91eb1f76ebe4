"""A group changes its protocol while it works: its confluent-kafka members are restarted one after the other."""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.end_to_end.conftest import SHORT_SESSIONS
from tests.support.clients import DEADLINE_S
from tests.support.group_member import GroupMember
from tests.support.group_scenarios import LONG_SESSION_TIMEOUT_MS, set_session_timeout
from tests.support.group_under_test import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, GroupUnderTest
from tests.support.server import Broker, KwireProcess

FAMILY = "confluent"
CONSUMER = {"group_protocol": "consumer"}


def classic(strategy: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> dict[str, str]:
    return {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": str(session_timeout_ms),
        "heartbeat_interval_ms": str(HEARTBEAT_INTERVAL_MS),
    }


def type_of(group: GroupUnderTest) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    described = admin.describe_consumer_groups([group.group])[group.group].result(DEADLINE_S)
    found: ConsumerGroupType = described.type
    return found


def roll(
    group: GroupUnderTest, members: list[GroupMember], settings: dict[str, str], in_between: Callable[[], object]
) -> None:
    """Start a new member for each old one, which leaves then. All have work all the time."""
    for old in list(members):
        members.append(group.start(**settings))
        group.wait_until_shared(*members)
        group.wait_until_all_commit(*members)
        # Now there are members of both protocols, and the group is one of the newer one.
        in_between()
        assert type_of(group) is ConsumerGroupType.CONSUMER
        members.remove(old)
        old.leave()
        group.wait_until_shared(*members)
        group.wait_until_all_commit(*members)


def roll_up_and_down(
    bootstrap: str, directory: Path, strategy: str, in_between: Callable[[], object] = lambda: None
) -> None:
    # What all members have in common; a member of the consumer protocol may not say how long its session is.
    with GroupUnderTest(bootstrap, FAMILY, directory, **CONSUMER) as group:
        members = [group.start(**classic(strategy)), group.start(**classic(strategy))]
        group.wait_until_shared(*members)
        group.wait_until_all_commit(*members)
        assert type_of(group) is ConsumerGroupType.CLASSIC
        roll(group, members, CONSUMER, in_between)
        assert type_of(group) is ConsumerGroupType.CONSUMER
        roll(group, members, classic(strategy), in_between)
        assert type_of(group) is ConsumerGroupType.CLASSIC
        group.finish()


def test_a_rolling_upgrade_and_downgrade_loses_nothing(short_sessions: Broker, tmp_path: Path) -> None:
    roll_up_and_down(short_sessions.bootstrap, tmp_path, "range")


def test_cooperative_members_lose_nothing_either_whenever_the_server_is_killed(
    start_kwire: Callable[..., KwireProcess], tmp_path: Path
) -> None:
    """Apache Kafka does not move such a group: it takes what librdkafka's members say for that of another assignor."""
    process = start_kwire(settings=SHORT_SESSIONS)

    def die_and_return() -> None:
        process.kill()
        process.restart()

    roll_up_and_down(process.bootstrap, tmp_path, "cooperative-sticky", die_and_return)


def test_static_members_change_their_protocol_without_a_rebalance(short_sessions: Broker, tmp_path: Path) -> None:
    with GroupUnderTest(short_sessions.bootstrap, FAMILY, tmp_path, **CONSUMER) as group:
        set_session_timeout(short_sessions.bootstrap, group.group)
        as_classic = classic("range", LONG_SESSION_TIMEOUT_MS)
        names = ("one", "other")
        members = {name: group.start(group_instance_id=name, **as_classic) for name in names}
        group.wait_until_shared(*members.values())
        for settings in (CONSUMER, as_classic):
            for name, neighbour in zip(names, reversed(names), strict=True):
                group.wait_until_all_commit(*members.values())
                before, changes = members[name].owned, members[neighbour].change_count
                members[name].kill()
                members[name] = group.start(group_instance_id=name, **settings)
                group.wait_until_shared(*members.values())
                group.wait_until_all_commit(*members.values())
                assert members[name].owned == before
                assert members[neighbour].change_count == changes, "a rebalance"
            is_classic = settings is as_classic
            assert type_of(group) is (ConsumerGroupType.CLASSIC if is_classic else ConsumerGroupType.CONSUMER)
        group.finish()

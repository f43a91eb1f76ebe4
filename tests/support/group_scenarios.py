"""What every client does with a group; a test per client runs them."""

from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.clients import DEADLINE_S
from tests.support.group_under_test import GroupUnderTest

# A session that does not end while a test waits: longer than SHARE_TIMEOUT_S. Kafka allows consumer groups no more.
LONG_SESSION_TIMEOUT_MS = 60_000


def members_come_and_go(bootstrap: str, family: str, directory: Path, **settings: str) -> None:
    """Two members share six partitions, a third joins and is killed, one is out for a while, one leaves in peace."""
    is_classic = settings.get("group_protocol") != "consumer"
    with GroupUnderTest(bootstrap, family, directory, **settings) as group:
        # The member that leaves in the end; if nobody noticed, the wait would end before its session.
        first = group.start(**({"session_timeout_ms": str(LONG_SESSION_TIMEOUT_MS)} if is_classic else {}))
        second = group.start()
        group.wait_until_shared(first, second)
        group.wait_until_all_commit(first, second)
        third = group.start()
        group.wait_until_shared(first, second, third)
        group.wait_until_all_commit(first, second, third)
        third.kill()
        # As a machine that stalls: back again, it commits what it had in hand, which by then belongs to another.
        second.freeze()
        group.wait_until_shared(first)
        group.wait_until_all_commit(first)
        second.thaw()
        group.wait_until_shared(first, second)
        group.wait_until_all_commit(first, second)
        if not is_classic:
            set_session_timeout(bootstrap, group.group)
            group.wait_until_all_commit(first, second)
        first.leave()
        group.wait_until_shared(second)
        group.wait_until_all_commit(second)
        group.finish()


def static_members_restart_in_peace(bootstrap: str, family: str, directory: Path, **settings: str) -> None:
    """Each of two members with names of their own goes away and comes back; the other notices nothing."""
    is_classic = settings.get("group_protocol") != "consumer"
    if is_classic:
        settings["session_timeout_ms"] = str(LONG_SESSION_TIMEOUT_MS)
    with GroupUnderTest(bootstrap, family, directory, **settings) as group:
        if not is_classic:
            set_session_timeout(bootstrap, group.group)
        names = ("one", "other")
        members = {name: group.start(group_instance_id=name) for name in names}
        group.wait_until_shared(*members.values())
        # Of the two one leads the group, if anybody does: both restart.
        for name, neighbour in zip(names, reversed(names), strict=True):
            group.wait_until_all_commit(*members.values())
            before, changes = members[name].owned, members[neighbour].change_count
            # A consumer group takes a name back only from a member that said goodbye for a while, or whose time is up.
            if is_classic:
                members[name].kill()
            else:
                members[name].leave()
            members[name] = group.start(group_instance_id=name)
            group.wait_until_shared(*members.values())
            group.wait_until_all_commit(*members.values())
            assert members[name].owned == before
            assert members[neighbour].change_count == changes, "a rebalance"
        group.finish()


def set_session_timeout(bootstrap: str, group: str) -> None:
    """Members of a consumer group do not say how long they may be silent; the group does."""
    wanted = ConfigEntry(
        "consumer.session.timeout.ms",
        str(LONG_SESSION_TIMEOUT_MS),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[wanted])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)

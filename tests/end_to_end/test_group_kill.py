"""SIGKILL of the server while groups work: no acknowledged commit is lost or goes back, and members rejoin alone."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError

from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.group_under_test import GroupUnderTest
from tests.support.server import KwireProcess, wait_until

KILLS = repetitions(quick=5, full=20)
KILLS_WITH_JAVA = repetitions(quick=2, full=5)
# From the restart until every member of every group has committed again.
REJOIN_TIMEOUT_S = 60.0
KILL_DELAY_S_MAX = 0.3
# Clients that find nobody wait less than by default, so that most of the time is spent with a server that runs.
EAGER = {"reconnect_backoff_max_ms": "200"}


class Crew(NamedTuple):
    """One group: the client its members use, how many they are, and what they are told."""

    family: str
    members: int
    settings: Mapping[str, str]


PYTHON_CREWS = (
    Crew("kafka-python", 2, EAGER),
    Crew("aiokafka", 2, {}),
    Crew("confluent", 2, EAGER),
    Crew("confluent", 2, {**EAGER, "group_protocol": "consumer"}),
)
# A JVM each.
JAVA_CREWS = (Crew("java", 1, EAGER), Crew("java", 1, {**EAGER, "group_protocol": "consumer"}))


def wait_until_all_work(groups: Sequence[GroupUnderTest]) -> None:
    """Until every member of every group has had a commit acknowledged after this call."""
    marks = [(group, {member: len(member.commits) for member in group.members}) for group in groups]

    def is_everybody_at_work() -> bool:
        idle = [member.name for group in groups for member in group.members if not member.is_running]
        assert idle == [], f"ended by themselves: {idle}"
        return all(group.have_all_committed(before) for group, before in marks)

    wait_until(is_everybody_at_work, "every member of every group commits", REJOIN_TIMEOUT_S)


def kill_and_compare(process: KwireProcess, groups: Sequence[GroupUnderTest]) -> None:
    """Kill the server and ask the next one what is committed: no less than members were told before."""
    process.kill()
    acknowledged = {group.group: group.acknowledged() for group in groups}
    process.restart()
    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        found = wait_until(lambda: committed_offsets(admin, groups), "the groups are loaded")
    finally:
        admin.close()
    lost = {
        (name, partition): (offset, found[name].get(partition, -1))
        for name, offsets in acknowledged.items()
        for partition, offset in offsets.items()
        if offset > found[name].get(partition, -1)
    }
    assert lost == {}, "acknowledged, and found after the restart"


def committed_offsets(admin: KafkaAdminClient, groups: Sequence[GroupUnderTest]) -> dict[str, dict[int, int]]:
    """By group and partition; empty while the server is still loading."""
    try:
        answer = admin.list_group_offsets({group.group: None for group in groups})
    except CoordinatorLoadInProgressError:
        return {}
    return {
        group: {partition.partition: committed.offset for partition, committed in offsets.items()}
        for group, offsets in answer.items()
    }


def work_under_kills(process: KwireProcess, crews: Sequence[Crew], kills: int, directory: Path) -> None:
    chance = random.Random(announced_seed())
    with ExitStack() as stack:
        groups = []
        for family, members, settings in crews:
            group = stack.enter_context(GroupUnderTest(process.bootstrap, family, directory, **settings))
            groups.append(group)
            for _ in range(members):
                group.start()
        for group in groups:
            group.wait_until_shared(*group.members)
        for _ in range(kills):
            wait_until_all_work(groups)
            threading.Event().wait(chance.uniform(0.0, KILL_DELAY_S_MAX))
            assert process.is_running, "the server ended by itself"
            kill_and_compare(process, groups)
        wait_until_all_work(groups)
        for group in groups:
            group.finish()
        # Nobody works any more: what is there now is what was there before.
        kill_and_compare(process, groups)


@pytest.mark.timeout(120 + 20 * KILLS)
def test_no_acknowledged_commit_is_lost_or_goes_back_under_kills(
    start_kwire: Callable[..., KwireProcess], tmp_path: Path
) -> None:
    work_under_kills(start_kwire(), PYTHON_CREWS, KILLS, tmp_path)


# The first run fetches the client with Maven and compiles the member.
@pytest.mark.needs_java
@pytest.mark.needs_mvn
@pytest.mark.timeout(500 + 20 * KILLS_WITH_JAVA)
def test_java_members_lose_no_commit_under_kills_either(
    start_kwire: Callable[..., KwireProcess], tmp_path: Path
) -> None:
    work_under_kills(start_kwire(), JAVA_CREWS, KILLS_WITH_JAVA, tmp_path)

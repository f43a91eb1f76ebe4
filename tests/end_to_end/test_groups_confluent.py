"""Groups of confluent-kafka consumers; `tests.support.group_scenarios` says what happens."""

from pathlib import Path

import pytest

from tests.support.group_scenarios import members_come_and_go, static_members_restart_in_peace
from tests.support.server import Broker

FAMILY = "confluent"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_lost(broker: Broker, tmp_path: Path, strategy: str) -> None:
    members_come_and_go(broker.bootstrap, FAMILY, tmp_path, partition_assignment_strategy=strategy)


def test_static_members_restart_without_a_rebalance(broker: Broker, tmp_path: Path) -> None:
    static_members_restart_in_peace(broker.bootstrap, FAMILY, tmp_path)


def test_members_of_a_consumer_group_come_and_go_and_nothing_is_lost(short_sessions: Broker, tmp_path: Path) -> None:
    members_come_and_go(short_sessions.bootstrap, FAMILY, tmp_path, group_protocol="consumer")


def test_static_members_of_a_consumer_group_restart_without_a_rebalance(short_sessions: Broker, tmp_path: Path) -> None:
    static_members_restart_in_peace(short_sessions.bootstrap, FAMILY, tmp_path, group_protocol="consumer")

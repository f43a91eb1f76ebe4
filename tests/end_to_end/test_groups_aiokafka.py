"""Groups of aiokafka consumers; `tests.support.group_scenarios` says what happens."""

from pathlib import Path

from tests.support.group_scenarios import members_come_and_go, static_members_restart_in_peace
from tests.support.server import Broker

FAMILY = "aiokafka"


def test_members_come_and_go_and_nothing_is_lost(broker: Broker, tmp_path: Path) -> None:
    members_come_and_go(broker.bootstrap, FAMILY, tmp_path)


def test_static_members_restart_without_a_rebalance(broker: Broker, tmp_path: Path) -> None:
    static_members_restart_in_peace(broker.bootstrap, FAMILY, tmp_path)

"""Groups of kafka-python consumers; `tests.support.group_scenarios` says what happens."""

from pathlib import Path

import pytest

from tests.support.group_scenarios import members_come_and_go, static_members_restart_in_peace
from tests.support.server import Broker

FAMILY = "kafka-python"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_lost(broker: Broker, tmp_path: Path, strategy: str) -> None:
    members_come_and_go(broker.bootstrap, FAMILY, tmp_path, partition_assignment_strategy=strategy)


def test_static_members_restart_without_a_rebalance(broker: Broker, tmp_path: Path) -> None:
    static_members_restart_in_peace(broker.bootstrap, FAMILY, tmp_path)

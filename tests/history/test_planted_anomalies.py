"""Every anomaly that is planted in a good history is found and called by its name, and nothing else is."""

import pytest

from tests.history.field import Field
from tests.history.plants import PLANTS
from tests.support.history_anomalies import Kind, report
from tests.support.history_checks import anomalies_in

SEEDS = range(12)
PLANTS_MIN = 15


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_anomaly_is_found(name: str) -> None:
    plant, kinds, also = PLANTS[name]
    for seed in SEEDS:
        field = Field(seed)
        plant(field)
        anomalies = anomalies_in(field.events)
        found = {anomaly.kind for anomaly in anomalies}
        assert kinds <= found, f"seed {seed}: not found {kinds - found}\n{report(anomalies)}"
        assert found <= kinds | also, f"seed {seed}: false alarms {found - kinds - also}\n{report(anomalies)}"


def test_every_kind_of_anomaly_is_planted() -> None:
    assert frozenset().union(*(plant.kinds for plant in PLANTS.values())) == frozenset(Kind)
    assert len(PLANTS) >= PLANTS_MIN


def test_the_report_counts_and_tells_facts() -> None:
    field = Field(1)
    PLANTS["committed_transaction_is_gone_from_the_log"].plant(field)
    told = report(anomalies_in(field.events))
    assert "LOST_WRITE" in told
    assert "not in the log" in told

"""A good history is left alone, whatever its producers could not know."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.history.honest_world import HonestWorld
from tests.support.effort import examples
from tests.support.history import Ended, Outcome, Read
from tests.support.history_anomalies import report
from tests.support.history_checks import anomalies_in


@settings(max_examples=examples(60))
@given(st.integers(min_value=0, max_value=2**32))
def test_nothing_is_found_where_nothing_is_wrong(seed: int) -> None:
    anomalies = anomalies_in(HonestWorld(seed).run().events)
    assert anomalies == [], report(anomalies)


@pytest.mark.parametrize("seed", range(5))
def test_a_good_history_has_every_kind_of_ending(seed: int) -> None:
    events = HonestWorld(seed).run().events
    outcomes = {event.outcome for event in events if isinstance(event, Ended)}
    assert outcomes == set(Outcome)
    assert sum(isinstance(event, Read) for event in events) > 100

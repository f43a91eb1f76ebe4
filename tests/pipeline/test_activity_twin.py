"""The plain twin of analytics is right itself: as a stream it tells what it tells of the whole, if nothing is late."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.analytics.analysis import Analysis
from tests.support.activity_twin import TWINS, Happened, StreamTwin, of_batch

ASKED = Analysis(window_ms=20, slide_ms=10, lateness_ms=30, gap_ms=7, top=2)
EVENTS = st.lists(
    st.builds(
        Happened,
        room=st.sampled_from(["lobby", "chat", "game"]),
        event_type=st.sampled_from(["message", "joined"]),
        user=st.sampled_from(["ann", "bob", None]),
        time_ms=st.integers(1_000, 1_200),
    ),
    max_size=40,
)
# Far behind everything: it closes all windows, and its own stay open.
LAST = Happened("lobby", "closed", "demo", 5_000)


@pytest.mark.parametrize("name", TWINS)
@given(events=EVENTS, sizes=st.lists(st.integers(1, 10), min_size=40, max_size=40))
def test_a_stream_in_order_tells_what_the_whole_tells(name: str, events: list[Happened], sizes: list[int]) -> None:
    ordered = iter(sorted(events, key=lambda event: event.time_ms))
    twin = StreamTwin(name, ASKED)
    for size in sizes:
        twin.batch(list(itertools.islice(ordered, size)))
    twin.batch([LAST])
    twin.batch([])
    assert twin.dropped == []
    assert len(twin.told) == len(set(twin.told))
    assert set(twin.told) == of_batch(name, events, ASKED)


@pytest.mark.parametrize("name", TWINS)
@given(events=EVENTS, sizes=st.lists(st.integers(1, 10), min_size=40, max_size=40))
def test_no_event_within_the_lateness_is_dropped(name: str, events: list[Happened], sizes: list[int]) -> None:
    waiting = iter(events)
    twin, newest_ms = StreamTwin(name, ASKED), 0
    for size in sizes:
        batch = list(itertools.islice(waiting, size))
        in_time = [event for event in batch if event.time_ms >= newest_ms - ASKED.lateness_ms]
        twin.batch(batch)
        assert not {one.event for one in twin.dropped} & set(in_time)
        newest_ms = max([newest_ms, *(event.time_ms for event in batch)])

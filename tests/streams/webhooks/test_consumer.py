"""One webhook without clock and network: the records it stores, and the state restored from them."""

from kwire.streams.events.event import Event
from kwire.streams.webhooks.consumer import Consumer, ConsumerRules, Outcome
from kwire.streams.webhooks.definition import Definition, TopicStart
from kwire.streams.webhooks.delivery.retry_schedule import Schedule
from kwire.streams.webhooks.delivery.sender import Response
from kwire.streams.webhooks.delivery.signing import SigningSecrets

NOW_MS = 1_700_000_000_000
RULES = ConsumerRules(Schedule((1000,), lambda: 0.5), 10, 10**12)


def definition(*, is_ordered: bool) -> Definition:
    return Definition(
        webhook_id="w",
        url="https://example.com/",
        topics={"t": TopicStart(b"i", 0, "m")},
        secrets=SigningSecrets.first(),
        is_ordered=is_ordered,
        parallel=1 if is_ordered else 4,
    )


def events(count: int) -> list[Event]:
    return [Event(offset, "", "made", b"1", NOW_MS, {}, None, 1) for offset in range(count)]


def test_an_event_beside_the_line_is_not_sent_in_line_as_well_after_a_restart() -> None:
    one, log = Consumer(definition(is_ordered=False), RULES), events(2)
    one.add_events("t", log, 2)
    first, second = one.take("t", NOW_MS, 0.0), one.take("t", NOW_MS, 0.0)
    assert first is not None
    assert second is not None
    assert one.finish("t", second, log[1], Response(500), NOW_MS).outcome is Outcome.RETRY
    # The first is still in flight: delivery starts there again.
    written = dict(one.take_changes())
    again = Consumer(one.definition, RULES)
    again.restore(written)
    assert again.cursors["t"].position == 0
    again.add_events("t", log, 2)
    taken = again.take("t", NOW_MS, 0.0)
    assert taken is not None
    assert taken.offset == 0
    assert again.take("t", NOW_MS, 0.0) is None
    later = again.take("t", NOW_MS + 1000, 1.0)
    assert later is not None
    assert (later.offset, later.attempt) == (1, 2)
    again.finish("t", later, log[1], Response(200), NOW_MS + 1000)
    assert dict(again.take_changes())["r", "t", 1] is None


def test_a_dead_letter_and_the_place_behind_it_are_written_down_together() -> None:
    one, log = Consumer(definition(is_ordered=True), RULES), events(1)
    one.add_events("t", log, 1)
    first = one.take("t", NOW_MS, 0.0)
    assert first is not None
    one.finish("t", first, log[0], Response(500), NOW_MS)
    one.take_changes()
    one.add_events("t", log, 1)
    second = one.take("t", NOW_MS + 1000, 1.0)
    assert second is not None
    assert one.finish("t", second, log[0], Response(None, "refused"), NOW_MS + 1000).outcome is Outcome.DEAD
    changes = dict(one.take_changes())
    assert changes["p", "t"]["position"] == 1
    assert changes["d", "t", 0].problem == "refused"


def test_the_log_of_deliveries_is_a_ring() -> None:
    one, log = Consumer(definition(is_ordered=True), RULES), events(25)
    one.add_events("t", log, 25)
    for event in log:
        delivery = one.take("t", NOW_MS, 0.0)
        assert delivery is not None
        one.finish("t", delivery, event, Response(200, excerpt="x" * 10_000), NOW_MS)
    assert sorted(each.number for each in one.attempts.values()) == list(range(15, 25))
    assert all(len(each.excerpt) <= 500 for each in one.attempts.values())
    assert sum(key[0] == "a" for key, _ in one.take_changes()) == 10

"""The cursor of a webhook in one topic, step by step."""

from kwire.streams.events.event import Event
from kwire.streams.webhooks.cursor import RETRY_QUEUE_MAX, WINDOW_OFFSETS, Retry, TopicCursor


def events(first: int, last: int) -> list[Event]:
    return [Event(offset, "", "t", b"1", 0, {}, None, 1) for offset in range(first, last + 1)]


def cursor(*, is_ordered: bool = True, parallel: int = 1) -> TopicCursor:
    return TopicCursor(b"", "", 0, is_ordered=is_ordered, parallel=parallel)


def now(due_ms: int) -> bool:
    return due_ms <= 100


def test_an_ordered_failure_holds_the_line_and_is_read_again_when_due() -> None:
    one = cursor()
    one.add(events(0, 4), 5)
    first = one.take(now)
    assert first is not None
    assert one.take(now) is None
    one.complete(first, Retry(1, 200))
    assert (one.position, one.read_to) == (0, 0)
    assert not one.wants_events(now)
    assert one.due_ms() == 200
    assert one.wants_events(lambda due_ms: True)
    one.add(events(0, 4), 5)
    again = one.take(lambda due_ms: True)
    assert again is not None
    assert (again.offset, again.attempt) == (0, 2)
    one.complete(again, None)
    following = one.take(now)
    assert following is not None
    # Events that waited after it have made no attempt.
    assert (following.offset, following.attempt) == (1, 1)


def test_attempts_are_forgotten_when_the_event_is_gone() -> None:
    one = cursor()
    one.add(events(0, 0), 1)
    first = one.take(now)
    assert first is not None
    one.complete(first, Retry(1, 0))
    one.add([], 3)
    assert one.head is None
    assert one.position == 3


def test_the_place_of_a_parallel_webhook_is_the_first_event_under_way() -> None:
    one = cursor(is_ordered=False, parallel=3)
    one.add(events(0, 4), 5)
    taken = [one.take(now) for _ in range(4)]
    first, second, third, nothing = taken
    assert first is not None
    assert second is not None
    assert third is not None
    assert nothing is None
    one.complete(second, None)
    assert one.position == 0
    one.complete(first, Retry(1, 500))
    assert one.position == 2
    assert one.retry_queue == {0: Retry(1, 500)}
    one.complete(third, None)
    assert one.position == 3


def test_a_line_that_ran_far_ahead_waits() -> None:
    one = cursor(is_ordered=False, parallel=2)
    one.add(events(0, 0), 1)
    assert one.take(now) is not None
    one.add([], WINDOW_OFFSETS)
    assert not one.wants_events(now)


def test_a_line_waits_when_too_many_have_failed() -> None:
    one = cursor(is_ordered=False, parallel=2)
    for offset in range(RETRY_QUEUE_MAX):
        one.send_again(offset, 10**9)
    one.add(events(RETRY_QUEUE_MAX, RETRY_QUEUE_MAX), RETRY_QUEUE_MAX + 1)
    assert one.take(now) is None
    assert not one.wants_events(now)
    assert one.due_ms() == 10**9


def test_what_is_under_way_during_a_seek_counts_no_more() -> None:
    one = cursor()
    one.add(events(0, 4), 5)
    first = one.take(now)
    assert first is not None
    assert one.seek(3) == []
    one.add(events(3, 4), 5)
    # Order: the new generation starts when the old request has ended.
    assert one.take(now) is None
    assert not one.complete(first, Retry(1, 0))
    following = one.take(now)
    assert following is not None
    assert (following.offset, one.position, one.head) == (3, 3, None)


def test_a_seek_takes_in_what_waited_beside_the_line() -> None:
    one = cursor(is_ordered=False, parallel=2)
    one.add([], 10)
    one.send_again(2, 0)
    one.send_again(7, 0)
    assert one.seek(5) == [7]
    assert list(one.retry_queue) == [2]


def test_a_request_that_was_not_made_goes_back_to_its_place() -> None:
    one = cursor(is_ordered=False, parallel=3)
    one.add(events(0, 3), 4)
    first, second = one.take(now), one.take(now)
    assert first is not None
    assert second is not None
    one.release(second)
    one.release(first)
    again = [one.take(now) for _ in range(3)]
    assert [each.offset for each in again if each is not None] == [0, 1, 2]


def test_a_failed_event_goes_on_waiting_when_the_mode_changes() -> None:
    one = cursor()
    one.add(events(0, 4), 5)
    first = one.take(now)
    assert first is not None
    one.complete(first, Retry(2, 500))
    one.change_mode(is_ordered=False, parallel=4)
    assert one.retry_queue == {0: Retry(2, 500)}
    assert (one.position, one.head) == (1, None)

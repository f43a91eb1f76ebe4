"""The cursor: what it asks for, and what it makes of the answers."""

from typing import Any

import pytest

from kwire.client.cursor import Cursor, Start
from kwire.client.errors import RoomNotFound, refusal_of
from kwire.client.events import Gap, Position


def answer(
    next_offset: int, newest: int, *, oldest: int = 0, epoch: str = "e1", recovered: bool = True
) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "oldest_offset": oldest,
        "newest_offset": newest,
        "next_offset": next_offset,
        "recovered": recovered,
    }


def begun(next_offset: int = 5, newest: int = 9) -> Cursor:
    cursor = Cursor("r", Start(from_offset=next_offset), {})
    cursor.subscribed(answer(next_offset, newest))
    return cursor


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        (Start(), {}),
        (Start(from_offset=0, replay=True), {"from_offset": 0, "replay": True}),
        (Start(from_offset=-50, replay=True), {"from_offset": -50, "replay": True}),
        (Start(from_time="2026-01-31T12:00:00Z"), {"from_time": "2026-01-31T12:00:00Z"}),
        (Start(resume=Position("e1", 7)), {"from_offset": 7, "epoch": "e1"}),
    ],
)
def test_the_first_request_is_what_the_user_said(start: Start, asked: dict[str, Any]) -> None:
    assert Cursor("r", start, {"on_lag": "drop", "types": None}).request() == {"room": "r", "on_lag": "drop", **asked}


def test_a_reader_of_new_events_resumes_at_the_head_it_was_told_though_it_saw_no_event() -> None:
    cursor = Cursor("r", Start(), {})
    cursor.subscribed(answer(10, 9))
    assert cursor.request() == {"room": "r", "from_offset": 10, "epoch": "e1"}


def test_the_next_request_goes_on_behind_the_last_event() -> None:
    cursor = begun()
    assert cursor.take(5)
    assert cursor.take(6)
    assert cursor.request() == {"room": "r", "from_offset": 7, "epoch": "e1"}
    assert cursor.subscribed(answer(7, 9)) == ((), False)


def test_an_event_is_taken_once() -> None:
    cursor = begun()
    assert [cursor.take(offset) for offset in (5, 6, 5, 6, 7)] == [True, True, False, False, True]


def test_a_checkpoint_moves_the_place_forward_only() -> None:
    cursor = begun()
    cursor.advance_past(8)
    cursor.advance_past(3)
    assert cursor.position == Position("e1", 9)


def test_events_lost_to_retention_are_a_gap_and_reading_goes_on_at_the_oldest() -> None:
    cursor = begun()
    refusal = refusal_of({"code": "OffsetOutOfRange", "message": "", "requested": 5, "oldest": 8, "newest": 20})
    assert cursor.refused(refusal) == (Gap("r", 5, 7, "retention"),)
    assert cursor.request()["from_offset"] == 8


def test_a_gap_at_offset_zero_shows_though_zero_is_never_refused() -> None:
    cursor = Cursor("r", Start(from_offset=0), {})
    cursor.subscribed(answer(0, -1))
    assert cursor.subscribed(answer(4, 9, oldest=4)).gaps == (Gap("r", 0, 3, "retention"),)


def test_the_first_refusal_is_the_users() -> None:
    cursor = Cursor("r", Start(from_offset=5), {})
    error = {"code": "OffsetOutOfRange", "message": "", "requested": 5, "oldest": 8, "newest": 20}
    assert cursor.refused(refusal_of(error)) is None


def test_a_refusal_that_is_no_gap_is_the_users() -> None:
    assert begun().refused(RoomNotFound("RoomNotFound", "", {})) is None


def test_a_room_made_anew_is_a_gap_without_an_end_and_is_read_from_its_oldest() -> None:
    cursor = begun()
    cursor.take(5)
    answered = cursor.subscribed(answer(0, 3, epoch="e2", recovered=False))
    assert answered == ((Gap("r", 6, None, "room_recreated"),), False)
    assert cursor.position == Position("e2", 0)


def test_a_log_that_lost_its_end_is_told_and_read_from_there() -> None:
    cursor = begun(5, 9)
    for offset in range(5, 10):
        cursor.take(offset)
    answered = cursor.subscribed(answer(10, 6, recovered=False))
    assert answered == ((Gap("r", 7, 9, "log_shortened"),), True)
    assert cursor.request()["from_offset"] == 7


def test_a_stored_position_beyond_the_log_is_told_too() -> None:
    cursor = Cursor("r", Start(resume=Position("e1", 10)), {})
    assert cursor.subscribed(answer(10, 6, recovered=False)).gaps == (Gap("r", 7, 9, "log_shortened"),)


def test_waiting_for_an_offset_that_never_was_is_no_loss() -> None:
    cursor = Cursor("r", Start(from_offset=100), {})
    assert cursor.subscribed(answer(100, 4, recovered=False)) == ((), False)
    assert cursor.subscribed(answer(100, 6, recovered=False)) == ((), False)

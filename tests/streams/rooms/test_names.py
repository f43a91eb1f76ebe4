"""Any text can be a room's name, and each room has a topic of its own."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwire.broker.topics.names import check_name
from kwire.errors import InvalidName
from kwire.streams.rooms.names import room_of_topic, topic_of_room, topic_prefix_of

# Much of what is hard here is made of these characters.
TRICKY = st.text(alphabet="_xX0245CF.-aé /\n😀", max_size=14)
ANY_NAMES = TRICKY | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
LEGAL_TOPICS = st.text(alphabet="_x0245CFac.-", min_size=1, max_size=20)


def topic_or_none(room: str) -> str | None:
    try:
        return topic_of_room(room)
    except InvalidName:
        return None


@pytest.mark.proves("S0-2")
@pytest.mark.parametrize("name", ["chat-room-1", "game-lobby-42", "notifications-user-123", "a.b_c-D", "_x", "_x4_"])
def test_name_that_kafka_allows_is_the_topics_name(name: str) -> None:
    assert topic_of_room(name) == name
    assert room_of_topic(name) == name


@pytest.mark.parametrize(
    ("room", "topic"),
    [
        ("a b", "a_x20_b"),
        ("é", "_xC3__xA9_"),
        ("team/red", "team_x2F_red"),
        (".", "_x2E_"),
        ("..", "_x2E__x2E_"),
        ("...", "..."),
        # What looks like an escape, also together with one that follows it.
        ("_x41_", "_x5F_x41_"),
        ("_x41_x42_", "_x5F_x41_x5F_x42_"),
        ("_x41 ", "_x5F_x41_x20_"),
        # No escape makes a reserved name.
        ("_ ", "_x5F__x20_"),
    ],
)
def test_other_names_are_escaped(room: str, topic: str) -> None:
    assert topic_of_room(room) == topic
    assert room_of_topic(topic) == room


@given(ANY_NAMES)
@example("_x41é")
@example("_x4_x41_")
@example("__x20_ ")
@example("_x5F_x41_")
@example("a_x2E_")
def test_room_is_told_by_its_topic(room: str) -> None:
    topic = topic_or_none(room)
    if topic is not None:
        check_name(topic)
        assert not topic.startswith("__")
        assert room_of_topic(topic) == room


@given(st.lists(TRICKY, min_size=2, max_size=8, unique=True))
def test_no_two_rooms_share_a_topic(rooms: list[str]) -> None:
    topics = [topic for room in rooms if (topic := topic_or_none(room)) is not None]
    assert len(set(topics)) == len(topics)


@given(LEGAL_TOPICS)
def test_topic_is_either_a_room_by_its_own_name_or_by_the_name_it_stands_for(topic: str) -> None:
    room = room_of_topic(topic)
    assert topic_or_none(room) == topic or room == topic


@given(TRICKY, TRICKY)
@example("_x41", "_")
@example("a_", "x41_")
@example("_x4", "1_")
@example(".", ".")
@example("_", " ")
def test_range_of_a_prefix_holds_all_rooms_that_begin_with_it(prefix: str, rest: str) -> None:
    topic = topic_or_none(prefix + rest)
    if topic is not None:
        assert topic.startswith(topic_prefix_of(prefix))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("__", "reserved"),
        ("__consumer_offsets", "reserved"),
        ("__ é", "reserved"),
        ("a" * 250, "more than 249 characters"),
        ("é" * 30, "more than 249 characters"),
        ("a" * 5_000_000, "more than 249 characters"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_name_that_no_room_can_have_is_refused(name: str, problem: str) -> None:
    with pytest.raises(InvalidName, match=re.escape(problem)) as caught:
        topic_of_room(name)
    assert caught.value.code == "InvalidName"
    assert len(caught.value.message) <= 1000


def test_longest_names_fit() -> None:
    assert topic_of_room("a" * 249) == "a" * 249
    assert len(topic_of_room("é" * 24 + "a" * 9)) == 249

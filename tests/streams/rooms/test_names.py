"""Any text can be a room's name, and each room has a topic of its own."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwire.access.scope import ID_LENGTH, MARK, PREFIX_LENGTH, Scope
from kwire.broker.topics.names import check_name
from kwire.errors import InvalidName, KafkaError
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
@example("_x41_", "")
@example("_x41_x42", "_")
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


SCOPES = [Scope("one", "a" * ID_LENGTH), Scope("two", "b" * ID_LENGTH)]
SCOPED = TRICKY | st.builds(Scope.full_name, st.sampled_from(SCOPES), TRICKY)


@given(st.sampled_from(SCOPES), SCOPED)
@example(SCOPES[0], ".")
@example(SCOPES[0], "_ ")
@example(SCOPES[0], SCOPES[0].full_name("__x"))
def test_a_room_of_a_scope_has_the_topic_that_it_has_without_a_scope(scope: Scope, room: str) -> None:
    # Without a scope, a name that looks like a full name belongs to the scope that it names.
    if not room.startswith(MARK):
        plain, full = topic_or_none(room), topic_or_none(scope.full_name(room))
        assert full == (None if plain is None else scope.full_name(plain))
    topic = topic_or_none(scope.full_name(room))
    if topic is not None:
        check_name(topic)
        assert scope.contains(topic)
        assert room_of_topic(topic) == scope.full_name(room)


@given(st.lists(st.tuples(st.sampled_from(SCOPES), SCOPED), min_size=2, max_size=8, unique=True))
def test_no_two_rooms_of_scopes_share_a_topic(rooms: list[tuple[Scope, str]]) -> None:
    topics = [topic for scope, room in rooms if (topic := topic_or_none(scope.full_name(room))) is not None]
    assert len(set(topics)) == len(topics)


@given(st.sampled_from(SCOPES), SCOPED, TRICKY)
def test_range_of_a_prefix_in_a_scope(scope: Scope, prefix: str, rest: str) -> None:
    topic = topic_or_none(scope.full_name(prefix + rest))
    if topic is not None:
        assert topic.startswith(topic_prefix_of(scope.full_name(prefix)))


def test_the_prefix_of_a_scope_counts() -> None:
    (scope, _) = SCOPES
    longest = "a" * (249 - PREFIX_LENGTH)
    assert topic_of_room(scope.full_name(longest)) == scope.full_name(longest)
    with pytest.raises(InvalidName, match="more than 233 characters"):
        topic_of_room(scope.full_name(longest + "a"))
    for name in (longest + "a", "", ".", ".."):
        with pytest.raises(KafkaError, match="at most 233"):
            check_name(scope.full_name(name))
    with pytest.raises(InvalidName, match="empty"):
        topic_of_room(scope.prefix)

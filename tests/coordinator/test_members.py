"""The vote for a protocol."""

from kwire.coordinator.group.classic.members import Member, common_protocols, selected_protocol


def member(*names: str) -> Member:
    return Member("m", None, "c", "/h", 1, 1, tuple((name, b"") for name in names))


def test_only_a_protocol_that_all_know_can_win() -> None:
    members = [member("a", "b"), member("c", "b"), member("b", "c")]
    assert common_protocols(members) == {"b"}
    assert selected_protocol(members) == "b"


def test_most_first_choices_win() -> None:
    assert selected_protocol([member("a", "b"), member("b", "a"), member("b", "a")]) == "b"


def test_tie_goes_to_the_choice_of_the_earliest_member() -> None:
    assert selected_protocol([member("a", "b"), member("b", "a")]) == "a"
    assert selected_protocol([member("b", "a"), member("a", "b")]) == "b"


def test_nobody_and_nothing_in_common_select_nothing() -> None:
    assert selected_protocol([]) is None
    assert selected_protocol([member("a"), member("b")]) is None

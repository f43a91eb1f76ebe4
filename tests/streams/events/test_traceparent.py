"""Which values of `traceparent` are carried, and where they are not added."""

import random
import string

import pytest

from kwire.streams.events.event import METADATA_MAX, NewEvent
from kwire.streams.events.traceparent import (
    TRACEPARENT,
    TRACEPARENT_LENGTH_MAX,
    is_valid_traceparent,
    traced,
    traced_metadata,
)
from tests.support.effort import repetitions

VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SEED = 24


@pytest.mark.parametrize("text", [VALID, VALID[:-2] + "ff", "01" + VALID[2:], "cc" + VALID[2:] + "-what-comes-later"])
def test_valid(text: str) -> None:
    assert is_valid_traceparent(text)


INVALID = {
    "empty": "",
    "upper case": VALID.upper(),
    "version ff": "ff" + VALID[2:],
    "no trace": f"00-{'0' * 32}-00f067aa0ba902b7-01",
    "no parent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    "short": VALID[:-1],
    "version 00 with more": VALID + "-00",
    "a later version without a dash": "01" + VALID[2:] + "00",
    "too long": "01" + VALID[2:] + "-" + "x" * TRACEPARENT_LENGTH_MAX,
    "a line break": VALID + "\n",
    "a later version with a line break": "01" + VALID[2:] + "-\n",
    "a space": " " + VALID,
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name: str) -> None:
    assert not is_valid_traceparent(INVALID[name])


def naive(text: str) -> bool:
    """The rules of the specification for version 00, one by one."""
    parts = text.split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2] or parts[0] != "00":
        return False
    if not all(character in "0123456789abcdef-" for character in text):
        return False
    return parts[1] != "0" * 32 and parts[2] != "0" * 16


def test_random_values_against_the_rules_of_the_specification() -> None:
    chance = random.Random(SEED)
    print("seed", SEED)
    valid = 0
    for _ in range(repetitions(quick=3000, full=100_000)):
        text = list(VALID)
        for _ in range(chance.randrange(3)):
            text[chance.randrange(2, len(text))] = chance.choice("0aF-" + string.hexdigits)
        if chance.random() < 0.1:
            text[3:35] = "0" * 32
        found = "".join(text)
        valid += is_valid_traceparent(found)
        assert is_valid_traceparent(found) == naive(found), found
    assert valid


def test_it_becomes_metadata_of_the_event() -> None:
    event = NewEvent("type", b"1", {"a": "b"})
    assert traced(event, None) is event
    assert traced(event, VALID).metadata == {"a": "b", TRACEPARENT: VALID}
    assert event.metadata == {"a": "b"}


def test_the_publisher_s_own_metadata_wins() -> None:
    given = {TRACEPARENT: "mine"}
    assert traced_metadata(given, VALID) is given
    full = {str(number): "" for number in range(METADATA_MAX)}
    assert traced_metadata(full, VALID) is full

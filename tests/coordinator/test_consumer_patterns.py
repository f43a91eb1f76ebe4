"""Regular expressions of subscriptions: matches, rejected syntax, and bounded time."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.coordinator.group.consumer.patterns import (
    NESTING_MAX,
    PATTERN_LENGTH_MAX,
    PROGRAM_STATES_MAX,
    REPEAT_MAX,
    InvalidPattern,
    check_pattern,
    parse,
)
from kwire.coordinator.group.consumer.regexes import CACHED_STATES_MAX, WORK_PER_NAME, Matcher
from kwire.errors import ErrorCode, KafkaError
from tests.support.effort import examples

ALPHABET = "abAB01.-_"

_atoms = st.sampled_from(
    [
        "a",
        "b",
        "B",
        "0",
        "_",
        r"\.",
        "-",
        ".",
        "[ab]",
        "[^a]",
        "[a-b0-]",
        r"\d",
        r"\w",
        r"\W",
        r"[\d.]",
        r"\b",
        "^",
        "$",
    ]
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda one: f"(?i:{one})"),
        inner.map(lambda one: f"(?P<n>{one})" if "(?P<n>" not in one else one),
    )


@settings(max_examples=examples(500), deadline=None)
@given(
    pattern=st.recursive(_atoms, _grow, max_leaves=6),
    names=st.lists(st.text(ALPHABET, min_size=0, max_size=6), min_size=1, max_size=8),
)
def test_whole_names_match_as_with_an_engine_that_backtracks(pattern: str, names: list[str]) -> None:
    try:
        reference = re.compile(pattern, re.ASCII)
    except re.error:
        # The same name of a group twice.
        return
    matcher = Matcher(pattern)
    for name in names:
        assert matcher.matches(name) == bool(reference.fullmatch(name)), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("foo.*", "foobar", True),
        ("foo", "foobar", False),
        ("oo", "foo", False),
        ("a|b|", "", True),
        ("(?i)FOO", "foo", True),
        ("a(?i)b", "aB", True),
        ("a(?i)b", "AB", False),
        ("(a(?i)b)c", "aBC", False),
        ("(?i:f)OO", "foo", False),
        ("(?i-i:f)", "F", False),
        ("(?i)[^a]", "A", False),
        (r"(?i)\P{Lu}", "a", False),
        ("(?i)[[:^lower:]]", "A", False),
        ("(?s).(?-s).", "ab", True),
        (r"[[:alpha:]]+[[:^alpha:]]", "ab1", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b\E", "axb", False),
        (r"x\\Q", "x\\Q", True),
        (r"\Qa|b", "a|b", True),
        (r"\p{Lu}\pL\p{^L}\PL", "Ab11", True),
        (r"\p{Latin}\p{Greek}*", "a", True),
        (r"\Afoo\z", "foo", True),
        ("[]a]", "]", True),
        ("[^]a]", "b", True),
        ("[a-]", "-", True),
        (r"[\w.-]+", "a_b.c-d", True),
        (r"[+--]", ",", True),
        ("x{,2}", "x{,2}", True),
        ("{", "{", True),
        ("a{2,}", "aaa", True),
        (r"\x41\x{42}\103\0", "ABC\0", True),
        ("(?P<first>a)(?<second>b)", "ab", True),
        (r"\Bb", "b", False),
        (r"a\Bb", "ab", True),
        ("é?a", "a", True),
        ("[a-é]", "z", True),
        ("(a*)*b", "aaab", True),
    ],
)
def test_expression_means_what_re2_says(pattern: str, name: str, is_match: bool) -> None:
    assert Matcher(pattern).matches(name) is is_match


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "*a",
        "a|*",
        "a**",
        "a{2}{3}",
        "[z-a]",
        "[a",
        "[[:foo:]]",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?P=n)",
        "(?#c)",
        "(?)",
        "(?i-)",
        "(?i",
        "(?<n",
        "(?P<a-b>x)",
        r"\1",
        r"\y",
        r"\p{Nothing}",
        r"\p{L",
        r"\x4",
        r"\x{110000}",
        "\\",
        r"[a-\d]",
        f"a{{{REPEAT_MAX + 1}}}",
        "a{2,1}",
        "((a{100}){100}){100}",
        "(" * (NESTING_MAX + 1) + ")" * (NESTING_MAX + 1),
        "a" * (PATTERN_LENGTH_MAX + 1),
        "a" * PROGRAM_STATES_MAX,
    ],
)
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        parse(pattern)


def test_refusal_has_kafkas_code_and_says_why() -> None:
    with pytest.raises(KafkaError, match="missing closing"):
        check_pattern("(a")
    with pytest.raises(KafkaError) as caught:
        check_pattern("(?=a)")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@settings(max_examples=examples(300), deadline=None)
@given(pattern=st.text("ab()[]{}*+?|\\^$.,-:<>=!PQEpxiUs0189é", max_size=20))
def test_any_text_is_an_expression_or_is_refused(pattern: str) -> None:
    try:
        matcher = Matcher(pattern)
    except InvalidPattern:
        return
    matcher.matches("ab-1")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"])
def test_no_expression_takes_long(pattern: str) -> None:
    """An engine that backtracks would not come back from these."""
    matcher, name = Matcher(pattern), "a" * 249
    assert not matcher.matches(name)
    assert matcher.work <= WORK_PER_NAME + (len(name) + 1) * PROGRAM_STATES_MAX


def test_remembered_steps_are_bounded() -> None:
    matcher = Matcher("(a|b)*a(a|b){12}")
    for number in range(2_000):
        name = f"{number:016b}".replace("0", "a").replace("1", "b")
        assert matcher.matches(name) == (name[-13] == "a")
        assert len(matcher._dfa_states) <= CACHED_STATES_MAX

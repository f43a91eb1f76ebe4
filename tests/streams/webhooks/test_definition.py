"""Validation of webhook requests."""

from typing import Any

import pytest

from kwire.errors import InvalidWebhook
from kwire.streams.webhooks.definition import (
    DESCRIPTION_LENGTH_MAX,
    HEADERS_MAX,
    PARALLEL_DEFAULT,
    TOPICS_MAX,
    TYPES_MAX,
    URL_LENGTH_MAX,
    Definition,
    TopicStart,
    parse_webhook,
)
from kwire.streams.webhooks.delivery.signing import SigningSecrets

GOOD: dict[str, Any] = {"url": "https://example.com/hook?key=1", "topics": {"orders": None}}


def definition(**values: Any) -> Definition:
    return Definition(
        webhook_id="w", topics={"orders": TopicStart(b"i" * 16, 3, "m")}, secrets=SigningSecrets.first(), **values
    )


@pytest.mark.proves("S2-16", "S2-22")
def test_a_url_and_topics_are_enough() -> None:
    asked = parse_webhook(GOOD)
    assert asked.values == {"url": "https://example.com/hook?key=1"}
    assert asked.topics == {"orders": None}


def test_topics_may_be_a_list() -> None:
    assert parse_webhook({**GOOD, "topics": ["a", "b"]}).topics == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("said", "is_ordered", "parallel"),
    [
        ({"mode": "ordered"}, True, 1),
        ({"mode": "parallel"}, False, PARALLEL_DEFAULT),
        ({"mode": "parallel", "parallel": 3}, False, 3),
        ({"parallel": 3}, False, 3),
        ({"parallel": 1}, True, 1),
        ({"mode": "parallel", "parallel": 1}, False, 1),
    ],
)
def test_modes(said: dict[str, Any], is_ordered: bool, parallel: int) -> None:
    values = parse_webhook({**GOOD, **said}).values
    assert (values["is_ordered"], values["parallel"]) == (is_ordered, parallel)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": None},
        {"url": 7},
        {"url": ""},
        {"url": "example.com"},
        {"url": "ftp://example.com/"},
        {"url": "https:///path"},
        {"url": "https://user:pass@example.com/"},
        {"url": "https://example.com/#here"},
        {"url": "https://example.com:99999/"},
        {"url": "https://example.com/a b"},
        {"url": "https://example.com/\r\nHost: x"},
        {"url": "https://example.com\\@evil.example/"},
        {"url": "https://[::1"},
        {"url": "https://example.com/" + "a" * URL_LENGTH_MAX},
        {"topics": None},
        {"topics": {}},
        {"topics": "orders"},
        {"topics": {"orders": 7}},
        {"topics": {"": None}},
        {"topics": {"x" * 250: None}},
        {"topics": ["a", "a"]},
        {"topics": [1]},
        {"topics": {str(number): None for number in range(TOPICS_MAX + 1)}},
        {"policy": "drop"},
        {"types": "made"},
        {"types": [""]},
        {"types": ["a"] * (TYPES_MAX + 1)},
        {"filter": 7},
        {"filter": "nonsense ("},
        {"mode": "random"},
        {"parallel": 0},
        {"parallel": True},
        {"mode": "ordered", "parallel": 2},
        {"ratePerSecond": 0},
        {"ratePerSecond": "many"},
        {"ratePerSecond": float("nan")},
        {"headers": []},
        {"headers": {"Bad Name": "x"}},
        {"headers": {"X": "a\r\nb"}},
        {"headers": {"X": ""}},
        {"headers": {"X": "é"}},
        {"headers": {"Host": "x"}},
        {"headers": {"Webhook-Id": "x"}},
        {"headers": {"ce-id": "x"}},
        {"headers": {"Content-Length": "5"}},
        {"headers": {"a": "1", "A": "2"}},
        {"headers": {f"h{number}": "x" for number in range(HEADERS_MAX + 1)}},
        {"body": "xml"},
        {"secret": 5},
        {"secret": "whsec_AAAA"},
        {"description": "x" * (DESCRIPTION_LENGTH_MAX + 1)},
        {"description": "\ud800"},
        {"callback": "https://example.com"},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_what_a_webhook_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidWebhook):
        parse_webhook({**GOOD, **wrong})


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidWebhook):
        parse_webhook([GOOD])


def test_a_change_says_only_what_is_to_be_another() -> None:
    asked = parse_webhook({"filter": None, "ratePerSecond": None}, is_new=False)
    assert asked.values == {"filter": None, "rate_per_second": None}
    assert asked.topics is None
    with pytest.raises(InvalidWebhook, match="rotate it"):
        parse_webhook({"secret": SigningSecrets.first().current}, is_new=False)


def test_a_definition_survives_the_store() -> None:
    made = definition(
        **parse_webhook(
            {
                **GOOD,
                "types": ["a", "b"],
                "filter": "data.x == 1",
                "mode": "parallel",
                "ratePerSecond": 2,
                "headers": {"Authorization": "Bearer x"},
                "body": "binary",
            }
        ).values,
        state="disabled",
        reason="gone",
    )
    assert Definition.from_stored("w", made.stored()) == made


def test_no_secret_is_shown() -> None:
    made = definition(url="https://example.com/", headers={"authorization": "Bearer hidden"})
    shown = repr(made.shown())
    assert made.secrets.current not in shown
    assert "hidden" not in shown


def test_secret_texts_are_header_values_and_parts_of_the_query() -> None:
    shown = definition(
        url="https://example.com/hook-path?token=a%20secret&short=1&flag-of-the-query",
        headers={"authorization": "Bearer of-good-news", "x-short": "abc"},
    )
    assert set(shown.secret_texts) == {
        "token=a%20secret&short=1&flag-of-the-query",
        "a%20secret",
        "a secret",
        "flag-of-the-query",
        "Bearer of-good-news",
        "of-good-news",
    }
    assert [len(text) for text in shown.secret_texts] == sorted(map(len, shown.secret_texts), reverse=True)
    assert shown.url_without_query == "https://example.com/hook-path"


def test_the_audit_log_gets_no_password_of_a_url() -> None:
    """Such a URL is refused, but an older version may have stored one."""
    assert definition(url="https://u:secret@example.com:8443/a?b").url_without_query == "https://example.com:8443/a"

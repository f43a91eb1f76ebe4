"""The filter language: its meaning, its errors, and that evaluation cannot fail."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kwire.errors import InvalidWebhook
from kwire.streams.events.event import Event
from kwire.streams.webhooks.expression import DEPTH_MAX, LENGTH_MAX, LIST_MAX, PARTS_MAX, Expression
from tests.support.effort import examples

DATA = {
    "amount": 120.5,
    "count": 3,
    "paid": True,
    "none": None,
    "name": "Ada Lovelace",
    "tags": ["new", "vip", 1],
    "customer": {"id": "c-7", "odd name": "x", "addresses": [{"city": "Paris"}]},
}


def event(data: object = DATA, event_type: str = "order.paid") -> Event:
    raw = json.dumps(data).encode()
    return Event(6, "evt_1", event_type, raw, 1_700_000_000_000, {"region": "eu"}, b"k1", 100)


@pytest.mark.proves("S2-44")
@pytest.mark.parametrize(
    "text",
    [
        'type == "order.paid"',
        "type == 'order.paid' and data.amount > 100",
        "data.amount >= 120.5 and data.amount <= 120.5 and not data.amount < 1",
        'type == "other" or data.count == 3',
        'not (type == "other" or data.count != 3)',
        "not not data.paid",
        "data.paid",
        "data.paid == true",
        "data.count",
        "not data.none",
        "not data.nothing.at.all",
        "data.nothing == null",
        'data.tags contains "vip"',
        '"vip" in data.tags',
        "1 in data.tags",
        'type in ["order.paid", "order.sent"]',
        'data.name contains "Love"',
        'data.name startswith "Ada" and data.name endswith "lace"',
        'data.customer.id == "c-7"',
        'data.customer["odd name"] == "x"',
        'data.customer.addresses[0].city == "Paris"',
        "data.customer.addresses[9].city == null",
        'data.customer contains "id"',
        'payload.name > "Ada"',
        'id == "orders-7"',
        'topic == "orders"',
        'time startswith "2023-11-14T"',
        'key == "k1"',
        'metadata.region == "eu"',
        "data.count == 3.0",
        "data.count != true",
        'data.amount != "120.5"',
        "1e2 < data.amount",
        "data.count > -4",
        'data.name != "say \\"hello\\"\\n"',
        "true",
    ],
)
def test_an_expression_holds(text: str) -> None:
    assert Expression(text).matches("orders", event())
    assert not Expression(f"not ({text})").matches("orders", event())


@pytest.mark.parametrize(
    "text",
    [
        "data.paid == 1",
        'data.amount > "1"',
        "data.tags > 1",
        "data.customer < data.customer",
        "data.count in data.count",
        'data.count startswith "3"',
        "null",
        "false",
        "data.none",
        "data[0]",
        "data.tags.name",
    ],
)
def test_things_of_different_kinds_are_unequal_and_in_no_order(text: str) -> None:
    assert not Expression(text).matches("orders", event())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "and",
        "type ==",
        "type = 'x'",
        "unknown == 1",
        "__import__('os')",
        "type.__class__()",
        "data.amount > 100 data",
        "(type == 'x'",
        "type == 'x')",
        "'unfinished",
        "data.",
        "data[",
        "data[1.5]",
        "data[-1]",
        "[1, 2",
        "[data.x]",
        "1 < 2 < 3",
        "type == 'x' && true",
        "lambda: 1",
        "é == 1",
        "x" * (LENGTH_MAX + 1),
        "(" * (DEPTH_MAX + 1) + "true" + ")" * (DEPTH_MAX + 1),
        " and ".join(["true"] * PARTS_MAX),
        "type in [" + ",".join("1" for _ in range(LIST_MAX + 1)) + "]",
        "data" + ".a" * 30,
        "1" * 50 + " == 1",
    ],
)
def test_what_makes_no_sense_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidWebhook) as refused:
        Expression(text)
    assert "filter" in refused.value.message


def test_a_refusal_says_where() -> None:
    with pytest.raises(InvalidWebhook, match=r"character 16: expected .*, found 'or'"):
        Expression("type == 'a' or or")


def test_an_event_that_cannot_be_looked_at_is_wanted() -> None:
    deep = Event(0, "", "t", b"[" * 100_000 + b"]" * 100_000, 0, {}, None, 0)
    assert Expression("data.a == 1").matches("orders", deep)


@settings(max_examples=examples(300), deadline=None)
@given(some.text(alphabet="typedaorn().[]\"'=<>! 0123,andotri", max_size=60))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        expression = Expression(text)
    except InvalidWebhook:
        return
    assert expression.matches("orders", event()) in (True, False)


_LITERALS = some.one_of(some.booleans(), some.integers(-5, 5), some.sampled_from(["a", "b"]), some.none())


@settings(max_examples=examples(200), deadline=None)
@given(
    left=some.one_of(_LITERALS, some.lists(_LITERALS, max_size=3), some.dictionaries(some.text(max_size=2), _LITERALS)),
    right=_LITERALS,
    compare=some.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "contains", "startswith", "endswith"]),
)
def test_no_comparison_fails_whatever_the_data(left: object, right: object, compare: str) -> None:
    found = Expression(f"data.left {compare} {json.dumps(right)}").matches("t", event({"left": left}))
    opposite = Expression(f"not data.left {compare} {json.dumps(right)}").matches("t", event({"left": left}))
    assert found is not opposite

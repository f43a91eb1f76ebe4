"""JSON paths of filters: which texts are paths, and what they select."""

from typing import Any

import pytest

from kwire.web.browse.json_path import PATH_LENGTH_MAX, STEPS_MAX, InvalidPath, parse_path

VALUE: Any = {
    "order": {"items": [{"name": "pen"}, {"name": "ink"}], "total": 7, "a b": None},
    "tags": ["x", "y"],
    "zoë": {"a-b_1": True},
}


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$", [VALUE]),
        ("$.order.total", [7]),
        ("$.order.items[0].name", ["pen"]),
        ("$.order.items[-1].name", ["ink"]),
        ("$.order.items[*].name", ["pen", "ink"]),
        ("$.order.items.*.name", ["pen", "ink"]),
        ("$['order']['a b']", [None]),
        ('$["order"].total', [7]),
        ("$.zoë.a-b_1", [True]),
        ("$.tags.*", ["x", "y"]),
        ("$.order.*", [VALUE["order"]["items"], 7, None]),
        ("$.order.items[2]", []),
        ("$.order.items[-3]", []),
        ("$.order[0]", []),
        ("$.tags.x", []),
        ("$.missing.deeper", []),
        ("$.order.total.deeper", []),
        ("$.order.total[*]", []),
        ("$['']", []),
    ],
)
def test_a_path_selects_parts(path: str, selected: list[Any]) -> None:
    assert parse_path(path).select(VALUE) == selected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "order",
        ".order",
        "$order",
        "$.",
        "$..name",
        "$.a b",
        "$[",
        "$[]",
        "$['a",
        "$['a'",
        "$[1:2]",
        "$[?(@.a)]",
        "$[(1)]",
        "$['a','b']",
        "$['a\\'b']",
        "$[1.5]",
        "$[1234567890]",
        "$." + "a" * PATH_LENGTH_MAX,
        "$" + "[0]" * (STEPS_MAX + 1),
    ],
)
def test_other_texts_are_refused_with_a_reason(path: str) -> None:
    with pytest.raises(InvalidPath, match=r"path"):
        parse_path(path)


def test_the_error_names_the_position() -> None:
    with pytest.raises(InvalidPath, match=r"character 4 of the path .* expressions are not supported"):
        parse_path("$.a[?(@.b==1)]")

"""Times and durations as users write them."""

import pytest

from kwire.cli.values.times import duration_text, parse_duration, parse_time, time_text

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("7d", 7 * DAY_MS),
        ("P1D", DAY_MS),
        ("P1DT2H3M4.5S", DAY_MS + 7_200_000 + 180_000 + 4_500),
        ("pt0s", 0),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "10", "10y", "-5m", "1.5h", "٣m", "P1M", "9" * 40 + "s"])
def test_other_texts_are_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-02", DAY_MS),
        ("1970-01-02T00:00:00Z", DAY_MS),
        ("1970-01-02T02:00:00+02:00", DAY_MS),
        ("1970-01-01T00:00:00.123456", 123),
        ("1969-12-31T23:59:59Z", -1000),
        ("@1234", 1234),
        ("10m", 400_000),
        ("9999d", 0),
    ],
)
def test_times(text: str, expected_ms: int) -> None:
    assert parse_time(text, now=lambda: 1_000_000) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "12", "2026-13-01", "-10m"])
def test_other_texts_are_not_times(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as"):
        parse_time(text)


def test_times_and_durations_are_shown() -> None:
    assert time_text(DAY_MS + 5) == "1970-01-02T00:00:00.005Z"
    assert time_text(-1) is None
    assert time_text(2**62) == f"@{2**62}"
    assert [duration_text(ms) for ms in (0, 1500, 90_000, 600_000, 9_000_000, 10 * DAY_MS)] == [
        *("0.0 s", "1.5 s", "90.0 s"),
        *("10.0 min", "2.5 h", "10.0 d"),
    ]

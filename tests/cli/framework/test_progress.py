"""Progress: a bar where somebody watches, a line now and then where nobody does."""

import io
from collections.abc import Callable

import pytest

from kwire.progress import BAR_CELLS_MAX, LINE_INTERVAL_SECONDS, Progress, duration_text, size_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_bar_tells_share_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    terminal, time = Terminal(), Time()
    progress = Progress("verify", 10_000_000, terminal, monotonic=time)
    time.now += 2
    progress.show(2_500_000)
    drawn = terminal.getvalue().rpartition("\x1b[2K")[2]
    filled = BAR_CELLS_MAX // 4
    assert (
        drawn == f"verify [{'#' * filled}{'.' * (BAR_CELLS_MAX - filled)}]  25%  2.5 MB of 10.0 MB  1.2 MB/s  6 s left"
    )


def test_the_bar_is_drawn_at_once_and_a_few_times_a_second_at_most() -> None:
    terminal, time = Terminal(), Time()
    progress = Progress("verify", 100, terminal, monotonic=time)
    for done in range(100):
        time.now += 0.01
        progress.show(done)
    assert 5 <= terminal.getvalue().count("\r") <= 11


def test_the_bar_fits_the_terminal_and_goes_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    progress = Progress("verify", 100, terminal, monotonic=Time())
    progress.show(50)
    assert len(terminal.getvalue().rpartition("\x1b[2K")[2]) < 20
    progress.close()
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    stream, time = io.StringIO(), Time()
    progress = Progress("verify", 1000, stream, monotonic=time)
    progress.show(10)
    assert stream.getvalue() == ""
    time.now += LINE_INTERVAL_SECONDS
    progress.show(500)
    progress.show(501)
    progress.close()
    assert stream.getvalue() == "verify:  50%  500 B of 1.0 kB  50 B/s  10 s left\n"


@pytest.mark.parametrize(("amount_text", "rate"), [(None, "<1 B/s"), (str, "<1/s")])
def test_a_slow_rate_is_not_shown_as_nothing(amount_text: Callable[[int], str] | None, rate: str) -> None:
    stream, time = io.StringIO(), Time()
    progress = Progress("lake", 8, stream, monotonic=time, amount_text=amount_text)
    time.now += LINE_INTERVAL_SECONDS
    progress.show(4)
    assert stream.getvalue().endswith(f"  {rate}  10 s left\n")


def test_progress_that_is_not_wanted_is_silent() -> None:
    terminal, time = Terminal(), Time()
    progress = Progress("verify", 1000, terminal, is_shown=False, monotonic=time)
    time.now += 1000
    progress.show(500)
    progress.close()
    assert terminal.getvalue() == ""


def test_nothing_to_do_is_all_done() -> None:
    terminal = Terminal()
    Progress("verify", 0, terminal, monotonic=Time()).show(0)
    assert "100%  0 B of 0 B" in terminal.getvalue()


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (10**18, "1000.0 PB")],
)
def test_sizes_have_units(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")]
)
def test_durations_have_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text

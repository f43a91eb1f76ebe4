"""What reconcile tells, and which part of a partition it reads again: no Spark, no server."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.reconcile.comparison import BEHIND, DIFFERENT, EXTRA, MISSING, Difference, Hour
from kwire.pipeline.reconcile.report import SHOWN_MAX, Report
from kwire.pipeline.reconcile.topic_rows import within
from kwire.pipeline.topic_facts import LogBounds

SAME = Hour(0, 498_000, 10, 77, 10, 77, first=0, last=9)


class Told:
    """A report and what it has written."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.out, self.everything = io.StringIO(), io.StringIO()
        self.report = Report("orders", "kwire.orders", self.out, self.everything, is_json=is_json)

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_nothing_but_the_sum_is_told_of_what_is_the_same() -> None:
    told = Told()
    told.report.hour(SAME)
    told.report.close(dead_letters=0, older_rows=0)
    assert told.lines() == ["orders and kwire.orders: 10 and 10 rows in 1 partition hours: no difference"]
    assert told.report.is_same(may_be_behind=False)
    (line,) = told.everything.getvalue().splitlines()
    assert json.loads(line)["hour"] == "2026-10-24T00:00Z"


def test_every_difference_is_counted_and_written_though_the_console_shows_the_first_only() -> None:
    told = Told()
    told.report.hour(SAME._replace(table_rows=0, table_checksum=0))
    for offset in range(SHOWN_MAX + 5):
        told.report.difference(Difference(MISSING, 0, offset))
    told.report.difference(Difference(DIFFERENT, 0, 900, "value"))
    told.report.close(dead_letters=2, older_rows=3)
    assert len(told.everything.getvalue().splitlines()) == SHOWN_MAX + 7
    assert sum("missing partition" in line for line in told.lines()) == SHOWN_MAX
    assert told.lines()[0].endswith("10 rows in the topic, 0 in the table")
    assert told.lines()[-2] == "orders: and 6 more; --report FILE writes all of them"
    asides = "(2 bad records are in the table of dead letters; 3 rows are older than the first record of the topic)"
    assert told.lines()[-1].endswith(f"{SHOWN_MAX + 5} missing, 1 different {asides}")
    assert not told.report.is_same(may_be_behind=True)


def test_rows_with_the_same_count_and_another_checksum_are_not_the_same() -> None:
    told = Told()
    told.report.hour(SAME._replace(table_checksum=78))
    assert "with different content" in told.lines()[0]


def test_being_behind_is_a_difference_unless_it_is_allowed() -> None:
    told = Told(is_json=True)
    told.report.difference(Difference(BEHIND, 1, 5))
    told.report.close(dead_letters=0, older_rows=0)
    assert not told.report.is_same(may_be_behind=False)
    assert told.report.is_same(may_be_behind=True)
    (line,) = told.lines()
    assert json.loads(line)["behind"] == 1
    told.report.difference(Difference(EXTRA, 1, 5))
    assert not told.report.is_same(may_be_behind=True)


@given(*(st.integers(0, 20) for _ in range(4)))
def test_what_is_read_again_lies_in_the_partition_and_has_all_that_was_asked_for(
    first: int, size: int, asked: int, more: int
) -> None:
    whole = LogBounds(first, first + size)
    part = within(whole, asked, asked + more)
    wanted = set(range(asked, asked + more + 1)) & set(range(*whole))
    assert set(range(*part)) == wanted
    assert whole.first <= part.first <= part.end <= whole.end

"""Shows the progress of a running job on the console: a bar if the job is bounded, otherwise a status line."""

import time
from collections.abc import Callable, Iterable
from typing import TextIO

from kwire.pipeline.batch_facts import BatchFacts
from kwire.progress import BAR_INTERVAL_SECONDS, ERASE_LINE, LINE_INTERVAL_SECONDS, Progress, fitting


class Console:
    """Shows the progress of a job's queries. On a terminal the line is redrawn in place, otherwise every ten seconds a
    new line is printed.

    With `shares_source` all queries read the same events, so each event counts once."""

    def __init__(
        self,
        job: str,
        stream: TextIO,
        *,
        is_bounded: bool,
        is_shown: bool,
        shares_source: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._stream = stream
        self._is_bounded = is_bounded
        self._is_shown = is_shown
        self._shares_source = shares_source
        self._monotonic = monotonic
        # When the first query was started.
        self._began: float | None = None
        self._is_terminal = stream.isatty()
        self._due = monotonic()
        self._is_drawn = False
        self._query_count = 0
        # The queries that have reported a batch, an idle trigger or their end.
        self._reported: set[str] = set()
        # Queries that are waiting for events.
        self._idle: set[str] = set()
        # The last batch of each query, and the number of events that the query has read so far.
        self._last: dict[str, BatchFacts] = {}
        self._read: dict[str, int] = {}
        self._bar: Progress | None = None

    def expect_query(self) -> None:
        self._query_count += 1
        if self._began is None:
            self._began = self._monotonic()

    @property
    def read_events(self) -> int:
        """The number of events that were read. If all queries read the same events, that of the slowest query."""
        if not self._shares_source:
            return sum(self._read.values())
        return min(self._read.values()) if len(self._read) == self._query_count else 0

    def batch(self, facts: BatchFacts) -> None:
        self._idle.discard(facts.query)
        self._last[facts.query] = facts
        self._read[facts.query] = self._read.get(facts.query, 0) + facts.read_events
        if self._is_bounded:
            self._update_bar(facts.query)
        else:
            self._show_line(status_text(self._job, list(self._last.values()), shares_source=self._shares_source))

    def idle(self, query: str) -> None:
        self._idle.add(query)
        if self._is_bounded:
            self._update_bar(query)
        elif len(self._idle) == self._query_count:
            self._show_line(f"{self._job}: waiting for events, {self.read_events:,} read")

    def ended(self, query: str) -> None:
        if self._is_bounded:
            self._update_bar(query)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._is_drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._is_drawn = False

    def _update_bar(self, query: str) -> None:
        self._reported.add(query)
        done = self.read_events
        if self._bar is None and self._last and len(self._reported) == self._query_count:
            lags = [facts.lag_events or 0 for facts in self._last.values()]
            left = max(lags) if self._shares_source else sum(lags)
            self._bar = Progress(
                self._job,
                done + left,
                self._stream,
                is_shown=self._is_shown,
                monotonic=self._monotonic,
                amount_text=lambda count: f"{count:,}",
                began=self._began,
            )
        if self._bar is not None:
            self._bar.show(done)

    def _show_line(self, text: str) -> None:
        now = self._monotonic()
        if not self._is_shown or now < self._due:
            return
        self._stream.write(ERASE_LINE + fitting(text) if self._is_terminal else text + "\n")
        self._stream.flush()
        self._is_drawn = self._is_terminal
        self._due = now + (BAR_INTERVAL_SECONDS if self._is_terminal else LINE_INTERVAL_SECONDS)


def status_text(job: str, batches: list[BatchFacts], *, shares_source: bool = False) -> str:
    """Return the status line of a job with several queries.

    The line has the sums of the rates and lags, the longest batch duration and the oldest watermark. If all queries
    read the same events, it has the rates of the slowest query and the longest lag instead of sums.
    """
    total: Callable[[Iterable[float]], float] = min if shares_source else sum
    lags = [facts.lag_events for facts in batches if facts.lag_events is not None]
    watermarks = [facts.watermark for facts in batches if facts.watermark is not None]
    late = sum(facts.late_rows for facts in batches)
    input_rates = [facts.input_rows_per_second for facts in batches if facts.input_rows_per_second is not None]
    parts = [
        f"{job}: batch {max(facts.batch_id for facts in batches)}",
        *([f"in {rate_text(total(input_rates))}"] if input_rates else []),
        f"done {rate_text(total(facts.processed_rows_per_second for facts in batches))}",
        f"took {max(facts.duration_ms for facts in batches) / 1000:.1f} s",
        f"lag {(max if shares_source else sum)(lags):,}" if lags else "lag unknown",
    ]
    if watermarks:
        parts.append(f"watermark {min(watermarks):%H:%M:%S}")
    if late:
        parts.append(f"late {late:,}")
    return "  ".join(parts)


def rate_text(per_second: float) -> str:
    """Return a rate as text. Slow is not the same as nothing: 0.4 is "<1/s"."""
    return "<1/s" if 0 < per_second < 1 else f"{per_second:,.0f}/s"

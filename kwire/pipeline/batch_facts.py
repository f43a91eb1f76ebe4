"""The main figures of a micro-batch, extracted from Spark's progress report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

UNNAMED = "query"
# The watermark that Spark reports before the first event.
_NO_WATERMARK = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Figures of one micro-batch.

    `lag_events` and `watermark` are None if Spark does not report them, for example for a batch that is repeated after
    a restart. `input_rows_per_second` is None for the first batch of a query: it is the rate since the batch before.
    `read_events` is computed from offsets. Spark's own count is too high if a batch is evaluated several times, because
    Spark then counts each row several times.
    """

    query: str
    batch_id: int
    read_events: int
    input_rows_per_second: float | None
    processed_rows_per_second: float
    duration_ms: int
    lag_events: int | None
    watermark: datetime | None
    state_rows: int
    late_rows: int

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Self:
        sources = progress.get("sources") or []
        operators = progress.get("stateOperators") or []
        lags = [_between(source.get("endOffset"), source.get("latestOffset")) for source in sources]
        read_events = sum(_read(source) for source in sources)
        # Spark's rates count each evaluation of a row.
        counted = sum(int(source.get("numInputRows") or 0) for source in sources)
        evaluations = counted / read_events if counted and read_events else 1.0
        input_rate = float(progress.get("inputRowsPerSecond") or 0.0)
        return cls(
            query=progress.get("name") or UNNAMED,
            batch_id=int(progress["batchId"]),
            read_events=read_events,
            input_rows_per_second=None if counted and not input_rate else input_rate / evaluations,
            processed_rows_per_second=float(progress.get("processedRowsPerSecond") or 0.0) / evaluations,
            duration_ms=int((progress.get("durationMs") or {}).get("triggerExecution") or 0),
            lag_events=None if None in lags else sum(lag for lag in lags if lag is not None),
            watermark=_watermark(progress),
            state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
            late_rows=sum(int(operator.get("numRowsDroppedByWatermark") or 0) for operator in operators),
        )


def _read(source: Mapping[str, Any]) -> int:
    between = _between(source.get("startOffset"), source.get("endOffset"))
    # Spark reports no start offset for the first batch, so its own row count is used.
    return int(source.get("numInputRows") or 0) if between is None else between


def _between(start: Any, end: Any) -> int | None:
    first, last = _offsets(start), _offsets(end)
    if first is None or last is None:
        return None
    # A partition without a start offset was added later, and is read from offset 0.
    return sum(max(0, offset - first.get(partition, 0)) for partition, offset in last.items())


def _offsets(reported: Any) -> dict[tuple[str, str], int] | None:
    """Return the offsets by topic and partition from Spark's `{"topic": {"0": 23}}`.

    `reported` is JSON text or a mapping. Return None if it has another form.
    """
    try:
        topics = json.loads(reported) if isinstance(reported, str) else reported
        return {(topic, number): int(offset) for topic, each in topics.items() for number, offset in each.items()}
    except (ValueError, TypeError, AttributeError):
        return None


def _watermark(progress: Mapping[str, Any]) -> datetime | None:
    text = (progress.get("eventTime") or {}).get("watermark")
    moment = datetime.fromisoformat(text) if text else _NO_WATERMARK
    return None if moment == _NO_WATERMARK else moment

"""What Spark reports of a micro-batch, in the few numbers that people ask for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

UNNAMED = "query"
# Where Spark begins to count when no event has moved the watermark yet.
_NO_WATERMARK = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """`lag_events` is None where Spark does not say, as in a batch that a restart repeats; so is `watermark`.

    `read_events` counts by offsets: Spark's own count of rows counts them again each time a batch is looked at.
    """

    query: str
    batch_id: int
    read_events: int
    input_rows_per_second: float
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
        return cls(
            query=progress.get("name") or UNNAMED,
            batch_id=int(progress["batchId"]),
            read_events=sum(_read(source) for source in sources),
            input_rows_per_second=float(progress.get("inputRowsPerSecond") or 0.0),
            processed_rows_per_second=float(progress.get("processedRowsPerSecond") or 0.0),
            duration_ms=int((progress.get("durationMs") or {}).get("triggerExecution") or 0),
            lag_events=None if None in lags else sum(lag for lag in lags if lag is not None),
            watermark=_watermark(progress),
            state_rows=sum(int(operator.get("numRowsTotal") or 0) for operator in operators),
            late_rows=sum(int(operator.get("numRowsDroppedByWatermark") or 0) for operator in operators),
        )


def _read(source: Mapping[str, Any]) -> int:
    between = _between(source.get("startOffset"), source.get("endOffset"))
    # The first batch of all has no start.
    return int(source.get("numInputRows") or 0) if between is None else between


def _between(start: Any, end: Any) -> int | None:
    first, last = _offsets(start), _offsets(end)
    if first is None or last is None:
        return None
    # A partition that was not there at the start is read from 0.
    return sum(max(0, offset - first.get(partition, 0)) for partition, offset in last.items())


def _offsets(told: Any) -> dict[tuple[str, str], int] | None:
    """Spark's `{"topic": {"0": 23}}`, as text or as it stands; None if it is nothing of the kind."""
    try:
        topics = json.loads(told) if isinstance(told, str) else told
        return {(topic, number): int(offset) for topic, each in topics.items() for number, offset in each.items()}
    except (ValueError, TypeError, AttributeError):
        return None


def _watermark(progress: Mapping[str, Any]) -> datetime | None:
    text = (progress.get("eventTime") or {}).get("watermark")
    moment = datetime.fromisoformat(text) if text else _NO_WATERMARK
    return None if moment == _NO_WATERMARK else moment

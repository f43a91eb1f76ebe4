"""Reports of Spark jobs, as the jobs send them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from kwire.client import NewEvent
from kwire.pipeline.reports.job_reports import JOB


def job(run: str, name: str, minutes_ago: int, state: str, **more: Any) -> NewEvent:
    facts = {
        "run": run,
        "job": name,
        "host": "spark-1",
        "pid": 4711,
        "started_at": time_before(minutes_ago),
        "is_bounded": False,
        "shares_source": name == "analytics",
        "topics": ["orders", "payments"],
        "pattern": None,
        "warehouse": "s3a://lake/warehouse",
        "state": state,
    }
    return NewEvent(JOB, facts | more)


def time_before(minutes: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="milliseconds")

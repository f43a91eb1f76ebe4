"""The analyses in Spark say what their plain twins say, for any events."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.pipeline.analytics.analysis import Analysis
from kwire.pipeline.analytics.job import RESULT_NAMES
from tests.support.activity_twin import TWINS, Happened, of_batch, rows_of_frame
from tests.support.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Each takes four Spark jobs.
EXAMPLES = examples(3)
NOW_MS = 1_800_000_000_000
# Times that often fall on the ends of windows and gaps, and between them.
TIMES = st.one_of(st.integers(0, 30).map(lambda tick: tick * 5_000), st.integers(0, 150_000))
EVENTS = st.builds(
    Happened,
    room=st.sampled_from(["lobby", "chat", "Ünter"]),
    event_type=st.sampled_from(["message", "joined"]),
    user=st.one_of(st.none(), st.sampled_from(["ann", "bob", ""])),
    time_ms=TIMES.map(lambda past: NOW_MS + past),
)
ANALYSES = st.builds(
    lambda slide, slides, gap, top: Analysis(slide * slides, slide, 10_000, gap, top),
    slide=st.sampled_from([5_000, 7_500, 60_000]),
    slides=st.integers(1, 4),
    gap=st.sampled_from([1, 5_000, 20_000]),
    top=st.integers(1, 3),
)


def frame_of(spark: "SparkSession", events: list[Happened]) -> "DataFrame":
    rows = spark.createDataFrame(events, "room string, event_type string, user string, time_ms bigint")
    return rows.selectExpr("room", "event_type", "user", "timestamp_millis(time_ms) AS event_time")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    # An example leaves nothing in the session.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(events=st.lists(EVENTS, max_size=100), asked=ANALYSES)
def test_a_batch_is_counted_as_its_twin_counts_it(
    spark: "SparkSession", events: list[Happened], asked: Analysis
) -> None:
    from kwire.pipeline.analytics.results import RESULTS

    frame = frame_of(spark, events)
    for name in TWINS:
        assert set(rows_of_frame(RESULTS[name].rows(frame, asked))) == of_batch(name, events, asked), name


def test_results_have_the_columns_that_their_tables_have(spark: "SparkSession") -> None:
    from kwire.pipeline.analytics.results import RESULTS
    from kwire.pipeline.columns import ddl

    asked = Analysis(60_000, 10_000, 30_000, 300_000)
    assert tuple(RESULTS) == RESULT_NAMES
    for result in RESULTS.values():
        frame = result.rows(frame_of(spark, []), asked)
        declared = [(column.name, ddl(column.type).replace("`", "")) for column in result.columns]
        assert frame.dtypes == declared, result.name
        assert set(result.identity) <= set(frame.columns)


def test_records_are_events_as_rooms_show_them(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    from kwire.pipeline.analytics.events import EventFields, events_of

    def header(key: str, value: bytes | None) -> tuple[str, bytearray | None]:
        return key, None if value is None else bytearray(value)

    then_ms = 1_700_000_000_000

    def record(value: bytes | None, headers: list[tuple[str, bytearray | None]] | None = None) -> tuple[object, ...]:
        return "lobby", None if value is None else bytearray(value), then_ms, headers

    records = [
        record(b'{"who":{"name":"ann"},"at":"2023-11-14T22:12:20.250Z"}', [header("ce_type", b"joined")]),
        record(
            b'{"who":{"name":7}}', [header("ce_type", b"first"), header("ce_type", b"last"), header("ce_type", b"")]
        ),
        record(b'{"who":{"name":null},"at":"yesterday"}', [header("ce_type", None), header("other", b"x")]),
        record(b'{"who":"bob","at":"2023-11-14T22:13:21Z"}'),  # a second after the record itself
        record(b"no json \xff"),
        record(None),
    ]
    schema = "topic string, value binary, time_ms bigint, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame(records, schema).selectExpr("*", "timestamp_millis(time_ms) AS timestamp")
    found = events_of(frame, EventFields("who.name", "at")).selectExpr(
        "room", "event_type", "user", f"unix_millis(event_time) - {then_ms}"
    )
    assert [tuple(row) for row in found.collect()] == [
        ("lobby", "joined", "ann", -59_750),
        ("lobby", "last", "7", 0),
        ("lobby", "message", None, 0),
        ("lobby", "message", None, 0),
        ("lobby", "message", None, 0),
        ("lobby", "message", None, 0),
    ]
    future = frame.withColumn("timestamp", F.expr("timestamp '2100-01-01'"))
    assert events_of(future, EventFields("user")).where("event_time > current_timestamp()").count() == 0

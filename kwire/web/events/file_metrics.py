"""Metrics of the event files; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.clock import Clock
from kwire.streams.event_store.files.sink import EventFiles


def event_file_families(sink: EventFiles, clock: Clock) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "kwire_event_files_written", "Events written to files since the start.", value=sink.written_count
    )
    yield GaugeMetricFamily(
        "kwire_event_files_behind_events", "Events not written to files yet.", value=sink.pending_count
    )
    # If no event is pending, ignore `oldest_waiting_ms`: the sink resets it only at the end of its round, later than
    # `pending_count`.
    oldest_ms = sink.oldest_waiting_ms if sink.pending_count else None
    yield GaugeMetricFamily(
        "kwire_event_files_behind_seconds",
        "Age of the oldest event that is not written to a file yet, by its timestamp.",
        value=0.0 if oldest_ms is None else max(0.0, (clock.now_ms() - oldest_ms) / 1000),
    )
    yield CounterMetricFamily(
        "kwire_event_files_failures", "Rounds of file writing that failed and were retried.", value=sink.failure_count
    )
    yield CounterMetricFamily(
        "kwire_event_files_skipped",
        "Events without files: damaged, or deleted by retention before they were written.",
        value=sink.skipped_count,
    )
    yield GaugeMetricFamily(
        "kwire_event_files_refused_topics",
        "Topics whose events are not written to files; the server's log has the reason.",
        value=sink.refused_count,
    )

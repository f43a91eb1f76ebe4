"""What the files of events have to say, as Prometheus families; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import WebServices


def event_file_families(services: WebServices) -> Iterator[Metric]:
    sink = services.event_files
    if sink is None:
        return
    yield CounterMetricFamily(
        "kwire_event_files_written", "Events that got their files since the start.", value=sink.written_count
    )
    yield GaugeMetricFamily(
        "kwire_event_files_behind_events", "Events that wait for their files.", value=sink.behind_count
    )
    # The sink forgets the oldest only at the end of its round, later than it counts the files.
    oldest_ms = sink.oldest_waiting_ms if sink.behind_count else None
    yield GaugeMetricFamily(
        "kwire_event_files_behind_seconds",
        "The age of the oldest event that waits for its file, by its timestamp.",
        value=0.0 if oldest_ms is None else max(0.0, (services.clock.now_ms() - oldest_ms) / 1000),
    )
    yield CounterMetricFamily(
        "kwire_event_files_failures", "Rounds of files that failed and were tried again.", value=sink.failure_count
    )
    yield CounterMetricFamily(
        "kwire_event_files_skipped",
        "Events that got no files: damaged, or gone by retention before.",
        value=sink.skipped_count,
    )
    yield GaugeMetricFamily(
        "kwire_event_files_refused_topics",
        "Topics that get no files; the log of the server says why.",
        value=sink.refused_count,
    )

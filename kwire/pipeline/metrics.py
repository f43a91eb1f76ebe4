"""Prometheus metrics of a streaming job. The job serves them on its own HTTP port."""

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from kwire.pipeline.batch_facts import BatchFacts

PORT_MAX = 65535
BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The metrics of one job's queries, with the labels `job` and `query`."""

    def __init__(self, job: str) -> None:
        self.registry = CollectorRegistry()
        self._job = job

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(f"kwire_pipeline_{name}", meaning, ("job", "query"), registry=self.registry)

        def counter(name: str, meaning: str) -> Counter:
            return Counter(f"kwire_pipeline_{name}", meaning, ("job", "query"), registry=self.registry)

        self._batches = counter("batches", "Micro-batches completed since the start")
        self._events = counter("events", "Events read since the start")
        self._late_rows = counter("late_rows", "Rows older than the watermark, which were not counted")
        self._input_rate = gauge("input_rows_per_second", "Rows that arrived per second before the last batch")
        self._processing_rate = gauge("processed_rows_per_second", "Rows processed per second in the last batch")
        self._lag = gauge("lag_events", "Events in the topics that the last batch had not read")
        self._state_rows = gauge("state_rows", "Rows kept between batches: open windows and sessions")
        self._watermark = gauge("watermark_timestamp_seconds", "Events before this time are late")
        self._durations = Histogram(
            "kwire_pipeline_batch_duration_seconds",
            "How long micro-batches took",
            ("job", "query"),
            buckets=BATCH_SECONDS,
            registry=self.registry,
        )

    def batch(self, facts: BatchFacts) -> None:
        labels = (self._job, facts.query)
        self._batches.labels(*labels).inc()
        self._events.labels(*labels).inc(facts.read_events)
        self._late_rows.labels(*labels).inc(facts.late_rows)
        if facts.input_rows_per_second is not None:
            self._input_rate.labels(*labels).set(facts.input_rows_per_second)
        self._processing_rate.labels(*labels).set(facts.processed_rows_per_second)
        self._state_rows.labels(*labels).set(facts.state_rows)
        self._durations.labels(*labels).observe(facts.duration_ms / 1000)
        if facts.lag_events is not None:
            self._lag.labels(*labels).set(facts.lag_events)
        if facts.watermark is not None:
            self._watermark.labels(*labels).set(facts.watermark.timestamp())

    def idle(self, query: str) -> None:
        """Set the rates and the lag of an idle query to zero."""
        labels = (self._job, query)
        for rate in (self._input_rate, self._processing_rate, self._lag):
            rate.labels(*labels).set(0)


@contextlib.contextmanager
def serving(metrics: Metrics, address: str | None) -> Iterator[None]:
    """Serve the metrics at the address `HOST:PORT` while the block runs. If `address` is None, serve nothing."""
    if address is None:
        yield
        return
    host, port = parsed_address(address)
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise OSError(f"--metrics {address}: {error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parsed_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"--metrics: expected HOST:PORT, got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)

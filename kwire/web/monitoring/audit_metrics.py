"""Metrics of the audit log; a part of GET /metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.access.audit.queue import AuditQueue


def audit_families(audit: AuditQueue) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "kwire_audit_entries", "Audit entries accepted for the topic kwire-audit.", value=audit.recorded
    )
    yield CounterMetricFamily(
        "kwire_audit_dropped",
        "Audit entries that were lost, because too many waited or they could not be written.",
        value=audit.dropped,
    )
    yield CounterMetricFamily(
        "kwire_audit_repeats",
        "Repeated logins and refusals that are part of the count of another entry.",
        value=audit.counted,
    )
    yield GaugeMetricFamily("kwire_audit_waiting", "Audit entries that wait to be written.", value=len(audit))

"""Metrics of logins, rights and the audit log; a part of GET /metrics. No metric has a label with a user or a key."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.access.audit.queue import AuditQueue
from kwire.web.services import AccessCounts


def access_families(audit: AuditQueue, counts: AccessCounts) -> Iterator[Metric]:
    logins = CounterMetricFamily(
        "kwire_access_logins",
        "Logins of clients, by port. Over HTTP, each request with credentials is a login.",
        labels=["port", "outcome"],
    )
    for (port, outcome), count in audit.logins.items():
        logins.add_metric([port, outcome], count)
    denials = CounterMetricFamily(
        "kwire_access_denials", "Operations refused because the client lacks the right, by port.", labels=["port"]
    )
    for port, count in audit.denials.items():
        denials.add_metric([port], count)
    yield from (logins, denials)
    yield GaugeMetricFamily("kwire_access_users", "Users with SCRAM credentials.", value=counts.users())
    yield GaugeMetricFamily("kwire_access_keys", "API keys, with their aliases.", value=counts.keys())
    yield GaugeMetricFamily("kwire_access_acls", "Number of ACLs.", value=counts.acls())
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
        "Repeated logins and refusals that were counted in an earlier entry.",
        value=audit.counted,
    )
    yield GaugeMetricFamily("kwire_audit_waiting", "Audit entries that wait to be written.", value=len(audit))

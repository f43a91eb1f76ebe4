"""Metrics of TLS by listener: the expiry of the certificate, reloads, handshakes; a part of GET /metrics."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener


def tls_families(listeners: "Sequence[TlsListener]") -> Iterator[Metric]:
    if not listeners:
        return
    expiry = GaugeMetricFamily(
        "kwire_tls_certificate_expiry_timestamp_seconds",
        "End of validity of the server's certificate, in seconds since 1970.",
        labels=["listener"],
    )
    reloads = CounterMetricFamily(
        "kwire_tls_reloads", "Changed certificate files, loaded or failed.", labels=["listener", "fate"]
    )
    pending = GaugeMetricFamily(
        "kwire_tls_handshakes_pending", "TLS handshakes that have not ended.", labels=["listener"]
    )
    failed = CounterMetricFamily(
        "kwire_tls_handshakes_failed", "TLS handshakes that failed or took too long.", labels=["listener"]
    )
    for one in listeners:
        expiry.add_metric([one.name], one.expires_at)
        reloads.add_metric([one.name, "loaded"], one.reloads)
        reloads.add_metric([one.name, "failed"], one.failed_reloads)
        pending.add_metric([one.name], one.pending_handshakes)
        failed.add_metric([one.name], one.failed_handshakes)
    yield from (expiry, reloads, pending, failed)

"""The HTTP port: health for a supervisor, metrics for Prometheus."""

import urllib.error
import urllib.request

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients import Topics, produce_values
from tests.support.clients_raw import RawConnection, metadata_request
from tests.support.server import KwireProcess, wait_until

HTTP_TIMEOUT_S = 30.0


def get(process: KwireProcess, path: str) -> tuple[int, str, str]:
    with urllib.request.urlopen(f"{process.http_url}{path}", timeout=HTTP_TIMEOUT_S) as response:
        return response.status, response.headers["Content-Type"], response.read().decode()


def metrics(process: KwireProcess) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(get(process, "/metrics")[2])}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_running_server_is_healthy_and_ready(kwire: KwireProcess, path: str) -> None:
    assert get(kwire, path)[0] == 200


def test_an_unknown_path_is_not_found(kwire: KwireProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        get(kwire, "/nothing-here")
    assert refusal.value.code == 404
    refusal.value.close()


def test_metrics_count_requests_by_api(kwire: KwireProcess) -> None:
    def requests() -> dict[str, float]:
        family = metrics(kwire)["kwire_server_requests"]
        return {
            sample.labels["api"].lower(): sample.value for sample in family.samples if sample.name.endswith("_total")
        }

    with RawConnection(kwire.kafka_address) as connection:
        connection.call(metadata_request(), 9)

        def counted() -> float:
            before = requests()["metadata"]
            for _ in range(5):
                connection.call(metadata_request(), 9)
            return requests()["metadata"] - before

        # A client that another test left may ask for metadata in between; then the next five tell.
        wait_until(lambda: counted() == 5, "five requests are counted as five")
        assert metrics(kwire)["kwire_server_connections"].samples[0].value >= 1


def test_metrics_tell_latency_log_size_and_stalls(kwire: KwireProcess, topics: Topics) -> None:
    topic = topics.create("http-metrics")
    produce_values(kwire.bootstrap, topic, [b"x" * 10_000])
    found = metrics(kwire)
    assert {sample.name.rpartition("_")[2] for sample in found["kwire_server_request_seconds"].samples} >= {
        "bucket",
        "count",
        "sum",
    }
    sizes = {sample.labels["topic"]: sample.value for sample in found["kwire_storage_log_size_bytes"].samples}
    assert 10_000 < sizes[topic] < 11_000
    assert found["kwire_loop_stall_seconds_max"].samples[0].value >= 0
    status, content_type, _ = get(kwire, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")

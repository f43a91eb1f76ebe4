"""The services of an HTTP port that are the same for a server and a bridge."""

from kwire.access.quotas.quotas import Quotas
from kwire.clock import Clock
from kwire.config import Config
from kwire.metrics import HttpMetrics, StreamMetrics
from kwire.server.http.stream_connections import StreamConnections
from kwire.web.answers.page_scheduler import PageScheduler
from kwire.web.requests.body_checks import BodyChecks
from kwire.web.requests.memory import HttpMemory
from kwire.web.services import PortServices


def port_services(config: Config, clock: Clock, quotas: Quotas) -> PortServices:
    stream_metrics = StreamMetrics()
    return PortServices(
        config=config,
        clock=clock,
        quotas=quotas,
        memory=HttpMemory(config.web.memory_bytes_max, config.web.memory_wait_ms),
        page_scheduler=PageScheduler(),
        body_checks=BodyChecks(),
        serve_stream=StreamConnections(
            stream_metrics, config.network.send_timeout_ms, config.web.socket_idle_timeout_ms, quotas
        ),
        stream_metrics=stream_metrics,
        http_metrics=HttpMetrics(),
    )

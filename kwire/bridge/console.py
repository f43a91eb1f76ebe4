"""The console of a bridge: its overview, and the requests of its pages."""

from kwire.bridge.kafka_requests.context import RequestServices
from kwire.bridge.kafka_requests.running import BridgeRequests
from kwire.web.bridge.load import BridgeLoad, BridgeSample
from kwire.web.bridge.services import BridgeMonitoring, BridgeOverviewServices
from kwire.web.console.sampler import Sampler
from kwire.web.services import KafkaRequestServices, PortServices


def overview_services(monitoring: BridgeMonitoring) -> BridgeOverviewServices:
    """The caller starts and closes the sampler."""
    return BridgeOverviewServices(monitoring, Sampler(BridgeSample, BridgeLoad(monitoring)))


def kafka_request_services(port: PortServices, services: RequestServices) -> KafkaRequestServices:
    return KafkaRequestServices(port, BridgeRequests(services))

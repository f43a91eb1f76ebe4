"""The console of a bridge: its overview."""

from kwire.web.bridge.load import BridgeLoad, BridgeSample
from kwire.web.bridge.services import BridgeMonitoring, BridgeOverviewServices
from kwire.web.console.sampler import Sampler


def overview_services(monitoring: BridgeMonitoring) -> BridgeOverviewServices:
    """The caller starts and closes the sampler."""
    return BridgeOverviewServices(monitoring, Sampler(BridgeSample, BridgeLoad(monitoring)))

"""The requests of Kafka APIs that a bridge serves as JSON. `kwire/bridge/kafka_requests` has their handlers.

Every request that a server serves is served by a bridge, or is in NOT_SERVED with the reason.
"""

from collections.abc import Mapping
from typing import Final

from kwire.web.kafka_requests.listed import REQUESTS
from kwire.web.kafka_requests.routes import routes_for
from kwire.web.route import Route
from kwire.web.services import KafkaRequestServices

_BROKERS = "it changes brokers of the cluster, for everybody who uses it: use the tools of the cluster"

NOT_SERVED: Final[Mapping[str, str]] = {
    "ApiVersions": "a bridge has no Kafka port; /openapi.json lists what it serves",
    "FindCoordinator": "clients of a bridge do not connect to coordinators",
    "DescribeLogDirs": "the response is that of one broker, and does not name it",
    "AlterReplicaLogDirs": _BROKERS,
    "UpdateFeatures": _BROKERS,
    "UnregisterBroker": _BROKERS,
    "ElectLeaders": _BROKERS,
    "AlterPartitionReassignments": _BROKERS,
    "WriteTxnMarkers": "it ends transactions of any producer of the cluster: use the tools of the cluster",
}

ROUTES: tuple[Route[KafkaRequestServices], ...] = routes_for(
    [one.name for one in REQUESTS if one.name not in NOT_SERVED]
)

"""The requests of Kafka APIs that a bridge serves as JSON. `kwire/bridge/kafka_requests` has their handlers."""

from typing import Final

from kwire.web.kafka_requests.routes import routes_for
from kwire.web.route import Route
from kwire.web.services import KafkaRequestServices

# The bridge answers these itself: its users, their rights and their quotas are not those of the cluster.
OWN: Final = (
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "DescribeClientQuotas",
    "AlterClientQuotas",
)

ROUTES: tuple[Route[KafkaRequestServices], ...] = routes_for(OWN)

"""TopicLimits: asks for max.message.bytes of topics."""

import logging
from typing import Final

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import refusal
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource

log = logging.getLogger("kwire.streams.remote")

MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# Kafka's default, for topics whose settings this user may not read.
MAX_MESSAGE_BYTES_DEFAULT: Final = 1_048_588
TOPIC_RESOURCE: Final = 2


class TopicLimits:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def max_batch_bytes(self, topic: str) -> int:
        """Return the largest batch of a topic: Kafka's default if the settings cannot be read. Raises Unreachable."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[MAX_MESSAGE_BYTES]
        )
        response = await self._cluster.request_any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
        (result,) = response.results
        if result.error_code:
            log.info("%s; its largest batch is taken to be the default", refusal(f"topic {topic!r}", result.error_code))
            return MAX_MESSAGE_BYTES_DEFAULT
        return next((int(one.value) for one in result.configs if one.value), MAX_MESSAGE_BYTES_DEFAULT)

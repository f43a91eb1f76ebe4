"""TopicLimits: asks for max.message.bytes of topics."""

import logging
from typing import Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin

log = logging.getLogger("kwire.streams.remote")

MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# Kafka's default, for topics whose settings this user may not read.
MAX_MESSAGE_BYTES_DEFAULT: Final = 1_048_588


class TopicLimits:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def max_batch_bytes(self, topic: str) -> int:
        """Return the largest batch of a topic. It is Kafka's default if this user may not read the settings."""
        try:
            configs = await self._admin.topic_configs(topic, [MAX_MESSAGE_BYTES])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            log.info("%s; %s is taken to be the default", error, MAX_MESSAGE_BYTES)
            return MAX_MESSAGE_BYTES_DEFAULT
        return int(configs.get(MAX_MESSAGE_BYTES) or MAX_MESSAGE_BYTES_DEFAULT)

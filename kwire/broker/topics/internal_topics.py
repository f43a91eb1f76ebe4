"""The internal topics of the server: their partition counts and settings."""

from collections.abc import Callable

from kwire.broker.topics.catalogue import EVENTS_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, WEBHOOKS_TOPIC
from kwire.config import Config
from kwire.config.setting import INT_MAX

# This is many times the size of the largest batch that the transaction coordinator writes.
TRANSACTION_BATCH_BYTES_MAX = 4 * 1024 * 1024
WEBHOOKS_SEGMENT_BYTES = 16 * 1024 * 1024


def _offsets(config: Config) -> tuple[int, dict[str, str]]:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.groups.offsets_segment_bytes),
    }
    return config.groups.offsets_partition_count, configs


def _transactions(config: Config) -> tuple[int, dict[str, str]]:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        # Independent of the broker's limit, because the record that ends a transaction must never be too large.
        "max.message.bytes": str(TRANSACTION_BATCH_BYTES_MAX),
        "segment.bytes": str(config.transactions.segment_bytes),
    }
    return config.transactions.partition_count, configs


def _events(config: Config) -> tuple[int, dict[str, str]]:
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "kwire.log.sync": "group",
        "max.message.bytes": str(INT_MAX),
        "max.decompressed.message.bytes": str(INT_MAX),
        "message.timestamp.type": "CreateTime",
        "retention.bytes": "-1",
        "retention.ms": str(config.events.retention_ms),
    }
    return 1, configs


def webhooks_topic() -> tuple[int, dict[str, str]]:
    """Return the partition count and settings of the topic with the state of webhooks. They are constants."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "kwire.log.sync": "group",
        "max.message.bytes": str(INT_MAX),
        "segment.bytes": str(WEBHOOKS_SEGMENT_BYTES),
    }
    return 1, configs


_MAKERS: dict[str, Callable[[Config], tuple[int, dict[str, str]]]] = {
    OFFSETS_TOPIC: _offsets,
    TRANSACTIONS_TOPIC: _transactions,
    EVENTS_TOPIC: _events,
    WEBHOOKS_TOPIC: lambda _: webhooks_topic(),
}
OWN_TOPICS = frozenset(_MAKERS)


def internal_topic(name: str, config: Config) -> tuple[int, dict[str, str]]:
    """Return the partition count and the settings of the topic `name`, which is one of OWN_TOPICS."""
    return _MAKERS[name](config)

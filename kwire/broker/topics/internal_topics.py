"""How the server makes its own topics: partition counts and settings."""

from collections.abc import Callable

from kwire.broker.catalogue import EVENTS_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, WEBHOOKS_TOPIC
from kwire.config import Config
from kwire.config.setting import INT_MAX

# What the coordinator of transactions writes at once, many times over.
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
        # Whatever the node's own limit is: the end of a transaction has to fit in all cases.
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
    """The same for where webhooks stand, which no setting of the server changes."""
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
    """The partition count and the settings of one of OWN_TOPICS."""
    return _MAKERS[name](config)

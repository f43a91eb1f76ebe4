"""check_upstream: finds out at the start whether a cluster can be used for rooms."""

import asyncio
import logging
from typing import Final

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import RETRIABLE, NotSupported, refusal
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.delete_records import DELETE_RECORDS
from kwire.wire.messages.delete_topics import DELETE_TOPICS
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS
from kwire.wire.messages.fetch import FETCH
from kwire.wire.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from kwire.wire.messages.list_offsets import LIST_OFFSETS
from kwire.wire.messages.metadata import METADATA
from kwire.wire.messages.produce import PRODUCE
from kwire.wire.schema import Api

log = logging.getLogger("kwire.bridge")

# The first version of Metadata with topic ids, which tell a room from a topic that was created again under its name.
TOPIC_IDS_VERSION: Final = 10
NEEDED: Final[tuple[tuple[Api, int], ...]] = (
    (METADATA, TOPIC_IDS_VERSION),
    *((api, 0) for api in (PRODUCE, FETCH, LIST_OFFSETS, INIT_PRODUCER_ID)),
    *((api, 0) for api in (CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS)),
    *((api, 0) for api in (DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS)),
)
OLDEST_KAFKA: Final = "Apache Kafka 2.8"
# A bit of the authorized operations of a cluster.
CREATE_BIT: Final = 1 << 5
NOT_KNOWN: Final = -(1 << 31)


async def check_upstream(cluster: Cluster) -> None:
    """Connect to a cluster. Raises KafkaError if it cannot be reached, is too old, or refuses its user.

    A right that may be missing for some topics only is a warning. The caller limits the time.
    """
    await cluster.refresh()
    for node, address in cluster.metadata.brokers.items():
        connection = cluster.link(node, Purpose.CONTROL).current
        if connection is None:
            continue
        for api, version in NEEDED:
            if not connection.versions.has(api, version):
                raise NotSupported(
                    f"the broker at {address} does not have {api.name} in version {max(version, api.first_version)}: "
                    f"rooms need {OLDEST_KAFKA} or a later version"
                )
    await _check_producer(cluster)
    await _check_rights(cluster)


async def _check_producer(cluster: Cluster) -> None:
    backoff = cluster.backoff()
    while True:
        response = await cluster.request_any(
            INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        )
        if response.error_code not in RETRIABLE:
            break
        # A cluster that has just started.
        await asyncio.sleep(backoff.next_seconds())
    if response.error_code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "the user of the bridge may not write: allow it Write, Read, Describe, Create, Delete, DescribeConfigs and "
            "AlterConfigs on the topics of rooms",
        )
    if response.error_code:
        raise refusal("InitProducerId", response.error_code)


async def _check_rights(cluster: Cluster) -> None:
    try:
        response = await cluster.request_any(
            DESCRIBE_CLUSTER, DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
    except NotSupported:
        return
    allowed = response.cluster_authorized_operations
    if response.error_code or allowed == NOT_KNOWN:
        log.warning("the user of the bridge may not describe the cluster: the sizes of rooms are not known")
    elif not allowed & CREATE_BIT:
        log.warning(
            "the user of the bridge may not create topics on the whole cluster: rooms can be created only under names "
            "for which it has the operation Create"
        )

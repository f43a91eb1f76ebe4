"""Metadata and DescribeTopicPartitions on a bridge: the topics that the client may describe.

Metadata never creates topics on a bridge. The authorized operations are those of the client, not those of the bridge.
"""

from collections.abc import Collection

from kwire.access.acl import Operation
from kwire.bridge.kafka_requests.context import RequestContext
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode
from kwire.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kwire.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kwire.wire.types import ZERO_UUID

NO_OPERATIONS = -2147483648


async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version, asked = context.api_version, request.topics
    is_everything = asked is None or (version == 0 and not asked)
    refused: list[MetadataResponseTopic] = []
    names: set[str] = set()
    ids: set[bytes] = set()
    if asked is not None:
        request.topics = []
        async for one in spread(asked):
            if one.topic_id != ZERO_UUID:
                ids.add(bytes(one.topic_id))
            elif one.name is not None and not context.topics.permits(Operation.DESCRIBE, one.name):
                refused.append(_refused(one.name, ZERO_UUID))
                continue
            elif one.name is not None:
                names.add(one.name)
            request.topics.append(one)
    if version == 0 and refused and not request.topics:
        # In version 0 no topics would be all topics.
        request.topics = [MetadataRequestTopic(name=refused[0].name)]
    request.allow_auto_topic_creation = False
    with_operations = request.include_topic_authorized_operations
    with_cluster_operations = request.include_cluster_authorized_operations
    request.include_topic_authorized_operations = request.include_cluster_authorized_operations = False
    response: MetadataResponse = await context.upstream.ask_any(METADATA, version, request)
    topics: list[MetadataResponseTopic] = []
    async for found in spread(response.topics):
        shown = _shown(context, found, names, ids, is_everything=is_everything)
        if shown is not None:
            shown.topic_authorized_operations = NO_OPERATIONS
            if with_operations and shown.name is not None:
                shown.topic_authorized_operations = context.topics.operations(shown.name)
            topics.append(shown)
    response.topics = topics + refused
    response.cluster_authorized_operations = context.cluster.operations if with_cluster_operations else NO_OPERATIONS
    return response


def _shown(
    context: RequestContext,
    found: MetadataResponseTopic,
    names: Collection[str],
    ids: Collection[bytes],
    *,
    is_everything: bool,
) -> MetadataResponseTopic | None:
    """Return a topic as the client sees it, or None if it did not request it or must not see it."""
    if found.name is None:
        return found
    if is_everything:
        return found if context.topics.allows(Operation.DESCRIBE, found.name) else None
    if found.name in names:
        return found
    if bytes(found.topic_id) not in ids:
        return None
    if not found.name.startswith(context.prefix):
        return _failed(None, found.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if not context.topics.permits(Operation.DESCRIBE, found.name):
        return _refused(None, found.topic_id)
    return found


def _refused(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return _failed(name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _failed(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


async def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    if not context.access.is_unrestricted:
        asked, request.topics = request.topics, []
        names = [one.name for one in asked] or await _visible_names(context)
        async for name in spread(names):
            if context.topics.permits(Operation.DESCRIBE, name):
                request.topics.append(TopicRequest(name=name))
            else:
                refused.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_UUID, partitions=[]
                    )
                )
        if not request.topics:
            # Without names the cluster would describe all topics.
            return DescribeTopicPartitionsResponse(topics=refused)
    response: DescribeTopicPartitionsResponse = await context.upstream.ask_any(
        DESCRIBE_TOPIC_PARTITIONS, context.api_version, request
    )
    async for one in spread(response.topics):
        is_found = one.name is not None and not one.error_code
        one.topic_authorized_operations = context.topics.operations(one.name or "") if is_found else NO_OPERATIONS
    response.topics += refused
    return response


async def _visible_names(context: RequestContext) -> list[str]:
    """Return the names of all topics that the client may describe. They are in the response's cursor, too."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response: MetadataResponse = await context.upstream.ask_any(METADATA, METADATA.last_version, request)
    return sorted(
        [
            one.name
            async for one in spread(response.topics)
            if one.name is not None and context.topics.allows(Operation.DESCRIBE, one.name)
        ]
    )

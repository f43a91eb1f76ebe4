"""The responses to failed Fetch requests, and to requests with partitions that cannot be read."""

from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

FIRST_TOPIC_ID_VERSION = 13


def failed_response(context: Context, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Return the response to a request that failed as a whole. Before version 13 each partition has the error too."""
    topics: list[FetchableTopicResponse] = []
    if context.api_version < FIRST_TOPIC_ID_VERSION:
        topics = [
            FetchableTopicResponse(
                topic=asked.topic, partitions=[failed(one.partition, code) for one in asked.partitions]
            )
            for asked in request.topics
        ]
    return FetchResponse(error_code=code, session_id=request.session_id, responses=topics)


def failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )

"""GET /topics/{topic}/partitions/{partition}/segments: the files of a partition's log."""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire.broker.admin.segments import DescribedSegment
from kwire.web.needs import DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.route import Route
from kwire.web.services import SegmentServices
from kwire.web.topics.lookup import PARTITION, TOPIC, find_log, find_topic
from kwire.web.topics.topics import check_enabled

SEGMENTS_MAX = 1000


class SegmentQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=SEGMENTS_MAX, description="The maximum number of segments.")] = (
        SEGMENTS_MAX
    )
    after: Annotated[
        int, msgspec.Meta(ge=-1, le=2**63 - 1, description="Only segments whose base offset is above this one.")
    ] = -1


class QuarantinedRange(msgspec.Struct, kw_only=True):
    """Damaged bytes. Reads of the offsets from `start_offset` up to, but not including, `end_offset` fail."""

    position: int
    size_bytes: int
    start_offset: int
    end_offset: int
    reason: str


class Segment(msgspec.Struct, kw_only=True):
    """One segment. Times are in milliseconds; null if the segment is empty or a time cannot be read."""

    base_offset: int
    next_offset: int
    size_bytes: int
    state: Annotated[str, msgspec.Meta(description="`active` for the segment that takes appends, otherwise `sealed`.")]
    first_timestamp_ms: int | None
    max_timestamp_ms: int | None
    index_bytes: int
    transaction_index_bytes: int
    quarantined: list[QuarantinedRange]


class SegmentList(msgspec.Struct, kw_only=True):
    topic: str
    partition: int
    segment_count: int
    segments: list[Segment]
    next: Annotated[int | None, msgspec.Meta(description="The `after` of the next page; null on the last page.")]


async def list_segments(services: SegmentServices, request: web.Request) -> web.Response:
    check_enabled(services.port)
    query = query_of(request, SegmentQuery)
    topic = await find_topic(services.topics, request)
    log = find_log(topic, request)
    await log.ready()
    page = await services.segments.describe(topic.name, log.partition, query.after, query.limit)
    return json_answer(
        SegmentList(
            topic=access_of(request).shown(topic.name),
            partition=log.partition,
            segment_count=page.segment_count,
            segments=[_segment(one) for one in page.segments],
            next=page.next_after,
        )
    )


def _segment(one: DescribedSegment) -> Segment:
    facts = one.facts
    return Segment(
        base_offset=facts.base_offset,
        next_offset=facts.next_offset,
        size_bytes=facts.size_bytes,
        state="active" if facts.is_active else "sealed",
        first_timestamp_ms=facts.first_timestamp,
        max_timestamp_ms=facts.max_timestamp,
        index_bytes=facts.index_bytes,
        transaction_index_bytes=facts.txn_index_bytes,
        quarantined=[
            QuarantinedRange(
                position=hole.position,
                size_bytes=hole.size_bytes,
                start_offset=hole.start_offset,
                end_offset=hole.end_offset,
                reason=hole.reason,
            )
            for hole in one.quarantined
        ],
    )


ROUTES: tuple[Route[SegmentServices], ...] = (
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/segments",
        list_segments,
        summary="List the segments of a partition on disk",
        description="The segments are in the order of their offsets. `index_bytes` is the size of the index file: the "
        "index of the active segment is partly in memory.",
        tag="topics",
        parameters={"topic": TOPIC, "partition": PARTITION},
        query=SegmentQuery,
        answers={200: SegmentList},
        needs=(DESCRIBE_TOPIC, DESCRIBE_CLUSTER),
    ),
)

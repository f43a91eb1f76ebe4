"""The shortcuts of Produce and of OffsetCommit on one connection."""

from pathlib import Path
from typing import Any

from kwire.errors import ErrorCode
from kwire.wire.apis import OFFSET_COMMIT, PRODUCE
from kwire.wire.messages.find_coordinator import FindCoordinatorRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.server.frames import Client
from tests.server.test_node import create_topic, port
from tests.server.test_produce_acks import end_offset
from tests.support.batches import make_batch
from tests.support.node import in_uvloop, running_node

LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def produce() -> tuple[ProduceRequest, int]:
    data = [PartitionProduceData(index=0, records=make_batch(timestamp_ms=0))]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=data)]), 8


def commit(offset: int) -> tuple[OffsetCommitRequest, int]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", member_id="", topics=[topic]), 7


def error_of(answer: Any) -> int:
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    return int(answer.topics[0].partitions[0].error_code)


@in_uvloop
async def test_produce_and_commit_take_turns_on_one_connection(tmp_path: Path) -> None:
    """Both are stored, answered in order and counted under their own names, whichever shortcut is in use."""
    async with running_node(tmp_path) as node, await Client.connect(port(node)) as client:
        await create_topic(client)
        await client.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
        while error_of(await client.ask(*commit(0))) in LOADING:
            pass
        counts = {key: node._shared.metrics.requests[key].count for key in (PRODUCE.key, OFFSET_COMMIT.key)}
        sent = []
        for number in range(1, 6):
            sent += [produce()] * 3 + [commit(10 * number + one) for one in range(3)] + [produce(), commit(number)]
        for asked in sent:
            client.send(*asked)
        assert [error_of(await client.receive()) for _ in sent] == [0] * len(sent)
        produced = sum(isinstance(asked, ProduceRequest) for asked, _ in sent)
        assert node._shared.metrics.requests[PRODUCE.key].count - counts[PRODUCE.key] == produced
        committed = len(sent) - produced
        assert node._shared.metrics.requests[OFFSET_COMMIT.key].count - counts[OFFSET_COMMIT.key] == committed
        assert await end_offset(client) == produced
        asked_topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=[asked_topic]), 5)
        assert fetched.topics[0].partitions[0].committed_offset == 5

"""ListPartitionReassignments: nothing is under way."""

from kwire.errors import ErrorCode
from kwire.wire.apis import LIST_PARTITION_REASSIGNMENTS
from kwire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.node import QuietNode, in_every_version, in_loop


@in_every_version(LIST_PARTITION_REASSIGNMENTS)
@in_loop
async def test_no_partition_is_being_reassigned(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    named = [
        ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 2, -1]),
        ListPartitionReassignmentsTopics(name="missing", partition_indexes=[0]),
    ]
    for topics in (None, [], named):
        answer = await node.ask(ListPartitionReassignmentsRequest(topics=topics), version)
        assert (answer.error_code, answer.error_message, answer.topics) == (ErrorCode.NONE, None, [])

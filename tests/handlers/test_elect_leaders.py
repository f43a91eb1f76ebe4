"""ElectLeaders: the one replica leads already."""

import inspect

from kwire.broker.chunked_answers import PARTITIONS_PER_CHUNK
from kwire.errors import ErrorCode
from kwire.wire.apis import ELECT_LEADERS
from kwire.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.node import QuietNode, in_every_version, in_loop, received

PREFERRED, UNCLEAN = 0, 1
MANY = 700


def request(partitions: dict[str, list[int]] | None, election_type: int = PREFERRED) -> ElectLeadersRequest:
    named = partitions and [TopicPartitions(topic=name, partitions=indexes) for name, indexes in partitions.items()]
    return ElectLeadersRequest(
        election_type=election_type, topic_partitions=None if partitions is None else named or [], timeout_ms=1000
    )


async def elect(
    node: QuietNode, version: int, partitions: dict[str, list[int]] | None, election_type: int = PREFERRED
) -> dict[str, list[tuple[int, int]]]:
    answer = await node.ask(request(partitions, election_type), version)
    assert answer.error_code == ErrorCode.NONE
    for topic in answer.replica_election_results:
        assert all(one.error_message for one in topic.partition_result)
    return {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }


@in_every_version(ELECT_LEADERS)
@in_loop
async def test_partition_that_exists_needs_no_election_and_others_are_unknown(node: QuietNode, version: int) -> None:
    await node.create("t", 2)
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for kind in (PREFERRED, UNCLEAN) if version else (PREFERRED,):
        assert await elect(node, version, {"t": [1, 0, 2, -1, 1], "missing": [0], "": [0]}, kind) == {
            "t": [(1, needless), (0, needless), (2, unknown), (-1, unknown), (1, needless)],
            "missing": [(0, unknown)],
            "": [(0, unknown)],
        }
        assert await elect(node, version, {}, kind) == {}
        assert await elect(node, version, {"t": []}, kind) == {"t": []}


@in_every_version(ELECT_LEADERS)
@in_loop
async def test_election_for_all_leaves_out_what_needs_none(node: QuietNode, version: int) -> None:
    assert await elect(node, version, None) == {}
    await node.create("a", 2)
    await node.create("b")
    assert await elect(node, version, None) == {"a": [], "b": []}


@in_every_version(ELECT_LEADERS)
@in_loop
async def test_unheard_of_election_is_refused_as_a_whole(node: QuietNode, version: int) -> None:
    if version < 1:
        return
    await node.create("t")
    for kind in (2, -1, 127):
        answer = await node.ask(request({"t": [0], "missing": [3]}, kind), version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        codes = [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2
        answer = await node.ask(request(None, kind), version)
        assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])


@in_every_version(ELECT_LEADERS)
@in_loop
async def test_many_topics_are_answered_in_turns(node: QuietNode, version: int) -> None:
    await node.create("t")
    asked = {("t" if number == 0 else f"missing-{number}"): [0] for number in range(MANY)}
    waiting = node.start(request(asked), version)
    assert inspect.isawaitable(waiting)
    answer = received(await waiting, version)
    assert [topic.topic for topic in answer.replica_election_results] == list(asked)
    codes = [topic.partition_result[0].error_code for topic in answer.replica_election_results]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 1)]


@in_loop
async def test_many_partitions_of_one_topic_are_answered_in_portions(node: QuietNode) -> None:
    await node.create("t")
    count = 2 * PARTITIONS_PER_CHUNK + 1
    for kind in (PREFERRED, 7):
        answer = await node.ask(request({"t": list(range(count))}, kind), 2)
        assert [topic.topic for topic in answer.replica_election_results] == ["t"] * 3
        told = [one.partition_id for topic in answer.replica_election_results for one in topic.partition_result]
        assert told == list(range(count))

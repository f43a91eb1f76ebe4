"""DescribeCluster: the cluster is this node."""

from pathlib import Path

from kwire.errors import ErrorCode
from kwire.wire.apis import DESCRIBE_CLUSTER
from kwire.wire.messages.describe_cluster import DescribeClusterRequest
from tests.support.access import CLUSTER_OPERATIONS
from tests.support.node import CLUSTER_ID, NODE_ID, FakePeer, QuietNode, in_loop

NOT_ASKED = -(2**31)
BROKERS, CONTROLLERS = 1, 2


def request(endpoint_type: int = BROKERS, *, operations: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=operations, endpoint_type=endpoint_type)


@in_loop
async def test_cluster_is_described(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "broker.rack=left") as node:
        for version in DESCRIBE_CLUSTER.versions:
            answer = await node.ask(request(), version)
            assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
            assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, NODE_ID)
            (broker,) = answer.brokers
            assert (broker.broker_id, broker.host, broker.port, broker.rack) == (NODE_ID, *FakePeer.endpoint, "left")
            assert not broker.is_fenced
            assert answer.endpoint_type == BROKERS


@in_loop
async def test_allowed_operations_are_told_to_those_who_ask(node: QuietNode) -> None:
    for version in DESCRIBE_CLUSTER.versions:
        assert (await node.ask(request(), version)).cluster_authorized_operations == NOT_ASKED
        answer = await node.ask(request(operations=True), version)
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


@in_loop
async def test_no_broker_is_fenced(node: QuietNode) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    answer = await node.ask(asked, 2)
    assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(NODE_ID, False)]


@in_loop
async def test_only_brokers_are_described(node: QuietNode) -> None:
    for version in DESCRIBE_CLUSTER.versions:
        if version < 1:
            continue
        answer = await node.ask(request(CONTROLLERS), version)
        assert (answer.error_code, answer.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
        assert answer.error_message
        for unheard_of in (0, 3, -1):
            answer = await node.ask(request(unheard_of), version)
            assert (answer.error_code, answer.brokers) == (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, [])

"""Frames that no client should send: valid requests of many kinds and versions, and ways to spoil them."""

import random
import struct
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

from tests.support.clients import unique_name
from tests.support.clients_raw import (
    LATEST,
    batch,
    encode,
    fetch_request,
    list_offsets_request,
    metadata_request,
    produce_request,
)

# Numbers that break a parser which believes what it reads.
SPITEFUL_INT32 = (-1, -2, 0, 1, 0x7FFF, 0x7FFFFFFF, -0x80000000, 1_000_000, 0x10000000)
SPITEFUL_INT16 = (-1, -2, 0, 0x7FFF, -0x8000)
CHANGES_MAX = 3


def _group_requests(topic: str) -> list[tuple[Any, tuple[int, ...]]]:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")
    commit = OffsetCommitRequest.OffsetCommitRequestTopic
    offset = commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    return [
        (FindCoordinatorRequest(key="abused", key_type=0, coordinator_keys=["abused"]), (0, 2, 3, 4)),
        (
            JoinGroupRequest(
                group_id="abused",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                member_id="",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[protocol],
                reason=None,
            ),
            (0, 5, 6, 9),
        ),
        (
            SyncGroupRequest(
                group_id="abused",
                generation_id=1,
                member_id="nobody",
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            ),
            (0, 3, 5),
        ),
        (HeartbeatRequest(group_id="abused", generation_id=1, member_id="nobody", group_instance_id=None), (0, 3, 4)),
        (LeaveGroupRequest(group_id="abused", member_id="nobody", members=[]), (0, 3, 4)),
        (
            OffsetCommitRequest(
                group_id="abused",
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time_ms=-1,
                topics=[commit(name=topic, partitions=[offset])],
            ),
            (2, 7, 8),
        ),
        (
            OffsetFetchRequest(
                group_id="abused",
                topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
                groups=[],
            ),
            (1, 5, 6),
        ),
    ]


def _admin_requests(topic: str) -> list[tuple[Any, tuple[int, ...]]]:
    # An invalid name: a spoilt copy should not be able to create a topic with a thousand partitions.
    created = CreateTopicsRequest.CreatableTopic(
        name="ab/used", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    deleted = DeleteTopicsRequest.DeleteTopicState(name="ab/used", topic_id=None)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="ab/used", count=2, assignments=None)
    described = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=None
    )
    return [
        (CreateTopicsRequest(topics=[created], timeout_ms=1_000, validate_only=True), (2, 4, 5, 7)),
        (DeleteTopicsRequest(topics=[deleted], topic_names=["ab/used"], timeout_ms=1_000), (1, 4, 6)),
        (CreatePartitionsRequest(topics=[grown], timeout_ms=1_000, validate_only=True), (0, 2, 3)),
        (DescribeConfigsRequest(resources=[described], include_synonyms=True, include_documentation=True), (1, 3, 4)),
        (DescribeClusterRequest(include_cluster_authorized_operations=True), (0, 1)),
    ]


def valid_frames(topic: str) -> list[bytes]:
    """One frame of every request and of every age of its encoding."""
    requests: list[tuple[Any, tuple[int, ...]]] = [
        (ApiVersionsRequest(client_software_name="raw", client_software_version="1"), (0, 2, 3, 4)),
        (metadata_request(topic, "another"), (1, 4, 8, 9, 12)),
        (produce_request(topic, batch(b"one", b"two" * 50)), (3, 7, 8, 9, 11)),
        (fetch_request(topic, 0, max_wait_ms=100), (4, 7, 11, 12)),
        (list_offsets_request(topic, LATEST), (1, 4, 6, 7)),
        (
            InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
            ),
            (0, 2, 4),
        ),
        *_group_requests(topic),
        *_admin_requests(topic),
    ]
    frames = []
    for request, versions in requests:
        for version in versions:
            if hasattr(request, "group_id"):
                # A group of its own for each: a member that joins waits for those of an earlier frame.
                request.group_id = unique_name("abused")
            frames.append(encode(request, version))
    return frames


def spoil(valid: bytes, chance: random.Random) -> bytes:
    """A frame with one to three things wrong; the length in front is put right in half of the cases."""
    data = bytearray(valid)
    for _ in range(chance.randint(1, CHANGES_MAX)):
        place = chance.randrange(4, len(data)) if len(data) > 4 else 0
        match chance.randrange(7):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.randrange(256)
            case 2 if place + 4 <= len(data):
                struct.pack_into(">i", data, place, chance.choice(SPITEFUL_INT32))
            case 3 if place + 2 <= len(data):
                struct.pack_into(">h", data, place, chance.choice(SPITEFUL_INT16))
            case 4:
                del data[place + 1 :]
            case 5:
                data[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                data[place : place + 5] = b"\xff\xff\xff\xff\x0f"
    if chance.random() < 0.5:
        struct.pack_into(">i", data, 0, len(data) - 4)
    return bytes(data)

"""The embedded consumer protocol is read in every version; other bytes are rejected."""

import pytest

from kwire.coordinator.group.classic.embedded_protocol import (
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription, OwnedTopicPartition
from kwire.wire.errors import WireError


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_read_as_it_was_written(version: int) -> None:
    data = write_assignment({"b": [2, 0], "a": [1]}, version)
    assert version_of(data) == version
    found = {one.topic: one.partitions for one in read_assignment(data).assigned_partitions}
    assert found == {"a": [1], "b": [0, 2]}
    assert read_assignment(data).user_data is None


def test_a_later_version_is_read_as_the_last_one_known() -> None:
    said = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=[OwnedTopicPartition(topic="t", partitions=[3])], generation_id=7, rack_id="r"
    )
    assert read_subscription(b"\x00\x09" + encode_message(said, 3) + b"what comes later") == said


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05", b"topics"])
def test_what_consumers_do_not_say_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        read_subscription(data)

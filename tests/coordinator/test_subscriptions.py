"""Topics are read from any version of a subscription; other bytes are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.coordinator.group.classic.subscriptions import subscribed_topics
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription, OwnedTopicPartition


def encoded(version: int, *topics: str, tail: bytes = b"") -> bytes:
    said = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=b"data",
        owned_partitions=[OwnedTopicPartition(topic="x", partitions=[1])],
        rack_id="r",
    )
    return version.to_bytes(2, "big") + encode_message(said, min(version, 3)) + tail


@pytest.mark.parametrize("version", range(5))
def test_every_version_begins_with_the_topics(version: int) -> None:
    members = [encoded(version, "a", "ü"), encoded(version), encoded(version, "a", "b", tail=b"later")]
    assert subscribed_topics("g", members) == frozenset({"a", "ü", "b"})


def test_no_members_want_nothing() -> None:
    assert subscribed_topics("g", []) == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff\x00\x01a",
        b"\x00\x00\x00\x00\x00\x01\x00\x05a",
        b"\x00\x00\x00\x00\x00\x01\xff\xffa",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_what_is_no_subscription_makes_all_unknown(data: bytes) -> None:
    assert subscribed_topics("g", [encoded(0, "a"), data]) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = subscribed_topics("g", [data])
    assert found is None or all(isinstance(topic, str) for topic in found)

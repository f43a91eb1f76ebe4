"""Chunked decoders and encoders: the same messages and bytes, with a yield after each chunk."""

from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from kwire.wire import codec
from kwire.wire.chunked_copy import COPIED_BYTES_PER_CHUNK
from kwire.wire.codec import (
    ELEMENTS_MAX,
    ELEMENTS_PER_CHUNK,
    FIXED_PER_CHUNK,
    chunked_decoder,
    chunked_encoder,
    decoder,
    encode_message,
    limits,
)
from kwire.wire.errors import TooManyElements, WireError
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.wire.cases import checking, every_message
from tests.wire.strategies import drawn

A = TypeVar("A")

MESSAGES_PER_VERSION = 3


def finished(steps: Generator[None, None, A]) -> tuple[A, int]:
    """The result, and how often the computation yielded before it."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@every_message
def test_chunked_codec_agrees_with_the_straight_one(
    cls: type[Any], versions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A yield after every element, in codecs of this test only.
    monkeypatch.setattr(limits, "ELEMENTS_PER_CHUNK", 1)
    monkeypatch.setattr(limits, "FIXED_PER_CHUNK", 1)
    monkeypatch.setattr(limits, "FIXED_PER_ELEMENT_LOG2", 0)
    monkeypatch.setattr(codec, "_chunked_decoders", {})
    monkeypatch.setattr(codec, "_chunked_encoders", {})
    for version in versions:
        with checking(cls, version):
            for message in drawn(cls, version, MESSAGES_PER_VERSION):
                encoded = encode_message(message, version)
                chunks, _ = finished(chunked_encoder(cls, version)(message))
                assert b"".join(chunks) == encoded
                decoded, _ = finished(chunked_decoder(cls, version)(encoded))
                assert decoded == message


@pytest.mark.parametrize("version", [0, 9])
def test_large_opaque_data_is_copied_in_chunks(version: int) -> None:
    metadata = bytes(range(256)) * (10 * COPIED_BYTES_PER_CHUNK // 256) + b"end"
    protocols = [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in ("range", "sticky")]
    message = JoinGroupRequest(
        group_id="group", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=protocols
    )
    decoded, yields = finished(chunked_decoder(JoinGroupRequest, version)(encode_message(message, version)))
    assert decoded == message
    assert yields >= 2 * 10


@pytest.mark.parametrize("version", [0, 4, 9, 12])
def test_large_message_yields_once_for_each_chunk(version: int) -> None:
    count = 10 * ELEMENTS_PER_CHUNK
    message = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)])
    encoded = encode_message(message, version)
    chunks, encode_yields = finished(chunked_encoder(MetadataRequest, version)(message))
    decoded, decode_yields = finished(chunked_decoder(MetadataRequest, version)(encoded))
    assert b"".join(chunks) == encoded
    assert [one.name for one in decoded.topics or ()] == [f"t{number}" for number in range(count)]
    assert 10 <= encode_yields <= 11
    assert 10 <= decode_yields <= 11


@pytest.mark.parametrize("version", [1, 6])
def test_numbers_of_an_array_are_read_and_written_in_chunks(version: int) -> None:
    indexes = list(range(10 * FIXED_PER_CHUNK + 1))
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=indexes)
    message = OffsetFetchRequest(group_id="g", topics=[topic])
    encoded = encode_message(message, version)
    chunks, encode_yields = finished(chunked_encoder(OffsetFetchRequest, version)(message))
    decoded, decode_yields = finished(chunked_decoder(OffsetFetchRequest, version)(encoded))
    assert b"".join(chunks) == encoded
    assert decoded == message
    assert encode_yields == decode_yields == 10


def test_long_strings_count_for_more_than_one_element() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 30_000) for _ in range(200)])
    _, yields = finished(chunked_decoder(MetadataRequest, 9)(encode_message(message, 9)))
    assert yields >= 200 * 29 // ELEMENTS_PER_CHUNK


def partitions(count: int) -> bytes:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return encode_message(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[one] * count)]), 7
    )


def test_decoder_refuses_more_elements_than_it_is_given_room_for() -> None:
    decode = decoder(ListOffsetsRequest, 7)
    assert len(decode(partitions(99), 100).topics[0].partitions) == 99
    with pytest.raises(TooManyElements, match="partitions has the count 100"):
        decode(partitions(100), 100)
    assert len(decode(partitions(100)).topics[0].partitions) == 100


def test_chunked_decoder_has_the_bound_of_every_message() -> None:
    data = partitions(ELEMENTS_MAX)
    with pytest.raises(TooManyElements):
        finished(chunked_decoder(ListOffsetsRequest, 7)(data))


def test_chunked_decoder_refuses_a_message_that_is_cut_short() -> None:
    data = partitions(5 * ELEMENTS_PER_CHUNK)
    with pytest.raises(WireError):
        finished(chunked_decoder(ListOffsetsRequest, 7)(data[:-7]))

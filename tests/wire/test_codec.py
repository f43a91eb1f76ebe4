"""The straight-line codec and the specification agree, for every API in every version."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from kwire.wire import types
from kwire.wire.codec import SMALL_RECORDS_BYTES, decode_message, encode_message, encoder
from kwire.wire.errors import WireError
from kwire.wire.messages.delete_topics import DeleteTopicsRequest
from kwire.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.schema import ArrayKind, Field, Kind, Message, Struct, Versions, message_of
from kwire.wire.spec import from_plain, spec, to_plain
from tests.support.effort import examples
from tests.wire.cases import CASES, Inner, Sample, by_message, checking, every_message, sample
from tests.wire.strategies import AGREEMENT_COUNT, FEW, drawn, instances, instances_of_any, invented

FLEXIBLE = [(cls, version) for cls, version in CASES if version in message_of(cls).flexible]
LATER_TAG = 77
SAMPLE_SPECS = [spec(Sample, version) for version in message_of(Sample).versions]


def check_agreement(message: Any, version: int, described: Any) -> None:
    cls = type(message)
    encoded = encode_message(message, version)
    assert described.build(to_plain(message)) == encoded
    assert decode_message(cls, version, encoded) == message
    assert from_plain(cls, described.parse(encoded)) == message
    # What follows a message is not its business: Kafka ignores it.
    assert decode_message(cls, version, encoded + b"\xff\x00") == message


def check_samples(**changes: Any) -> None:
    for version, described in enumerate(SAMPLE_SPECS):
        check_agreement(sample(**changes), version, described)


@every_message
def test_codec_and_spec_agree(cls: type[Any], versions: list[int]) -> None:
    described = {version: spec(cls, version) for version in versions}
    for version in versions:
        with checking(cls, version):
            for message in drawn(cls, version, AGREEMENT_COUNT):
                check_agreement(message, version, described[version])

    # Hypothesis finds a smaller message that fails, where there is one.
    @FEW
    @given(instances_of_any(cls, versions))
    def agree(example: tuple[int, Any]) -> None:
        version, message = example
        check_agreement(message, version, described[version])

    agree()


@pytest.mark.parametrize("version", [0, 1])
def test_codec_and_spec_agree_on_fields_of_every_kind(version: int) -> None:
    @settings(FEW, max_examples=examples(60))
    @given(instances(Sample, version))
    def agree(message: Sample) -> None:
        check_agreement(message, version, SAMPLE_SPECS[version])

    agree()


SCALARS = [f for f in message_of(Sample).struct.at(0) if isinstance(f.kind, types.Fixed | types.Varlen)]


@pytest.mark.parametrize("field", SCALARS, ids=lambda field: field.name)
def test_codec_and_spec_agree_on_any_scalar(field: Field) -> None:
    @settings(FEW, max_examples=examples(30))
    @given(invented(field.kind))
    def agree(value: Any) -> None:
        check_samples(**{field.name: value})

    agree()


@pytest.mark.parametrize("size", [126, 127, 128, 16382, 16383, 16384, 32767])
def test_lengths_on_both_sides_of_a_varint_border_agree(size: int) -> None:
    check_samples(string="s" * size, data=b"d" * size, nullable_records=b"r" * size)


@pytest.mark.parametrize("count", [126, 127, 128])
def test_counts_on_both_sides_of_a_varint_border_agree(count: int) -> None:
    check_samples(inners=[Inner(text="i")] * count, strings=["", "a"] * count, uuids=[b"u" * 16] * count)


@pytest.mark.parametrize("size", [0, SMALL_RECORDS_BYTES - 1, SMALL_RECORDS_BYTES, 100_000])
def test_records_agree_wherever_they_stand(size: int) -> None:
    records = memoryview(bytes(size))
    check_samples(records=records, nullable_records=records)
    check_agreement(sample(tagged_records=records), 1, SAMPLE_SPECS[1])


@by_message(FLEXIBLE)
def test_tagged_fields_of_a_later_release_are_stepped_over(cls: type[Any], versions: list[int]) -> None:
    """Every struct of the message, on every level, carries one tag that is not declared."""
    later = _message_of_later(cls)
    for version in versions:
        with checking(cls, version):
            described, described_later = spec(cls, version), spec(later, version)
            for message in drawn(cls, version):
                encoded = described_later.build(_with_later(to_plain(message)))
                assert decode_message(cls, version, encoded) == message
                assert from_plain(cls, described.parse(encoded)) == message


def _message_of_later(cls: type[Any]) -> type[Any]:
    known = message_of(cls)
    later = Message(known.name, known.key, known.versions, known.flexible, _widened(known.struct))
    return type(known.name, (), {"__message__": later})


def _widened(kind: Struct) -> Struct:
    later = Field("later", types.STRING, Versions.parse("0+"), Versions.parse("none"), LATER_TAG, None)
    return Struct(kind.name, kind.make, (*(replace(f, kind=_widened_kind(f.kind)) for f in kind.fields), later))


def _widened_kind(kind: Kind) -> Kind:
    if isinstance(kind, ArrayKind):
        return ArrayKind(_widened(kind.element)) if isinstance(kind.element, Struct) else kind
    return _widened(kind) if isinstance(kind, Struct) else kind


def _with_later(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_with_later(element) for element in plain]
    if isinstance(plain, dict):
        return {
            **{name: _with_later(value) for name, value in plain.items()},
            "later": "a value of two bytes' size" * 6,
        }
    return plain


def test_tagged_fields_at_their_default_are_not_written() -> None:
    plain = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    assert encode_message(plain, 15)[-1:] == b"\x00"
    told = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c")
    assert encode_message(told, 15)[-5:] == bytes.fromhex("01 00 02 02 63")


def test_null_is_read_from_the_version_on_that_allows_it() -> None:
    told = sample(string_nullable_later=None)
    assert decode_message(Sample, 1, encode_message(told, 1)).string_nullable_later is None


@pytest.mark.parametrize("mark", [0x80, 0xFE, 0xFF])
def test_a_negative_mark_in_front_of_a_struct_means_null(mark: int) -> None:
    absent = bytearray(encode_message(sample(nullable_inner=None), 0))
    present = encode_message(sample(nullable_inner=Inner()), 0)
    place = next(place for place, byte in enumerate(absent) if byte != present[place])
    absent[place] = mark
    assert decode_message(Sample, 0, absent).nullable_inner is None


def test_large_records_leave_the_encoder_as_they_came() -> None:
    records = memoryview(bytes(SMALL_RECORDS_BYTES))
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition, partition])])
    parts = encoder(FetchResponse, 13)(response)
    assert sum(part is records for part in parts) == 2


def test_decoded_records_are_a_view_of_the_received_bytes() -> None:
    received = bytearray(encode_message(sample(records=b"abc"), 0))
    decoded = decode_message(Sample, 0, received)
    received[received.index(b"abc")] = ord("x")
    assert bytes(decoded.records) == b"xbc"


def test_other_values_do_not_depend_on_the_received_buffer() -> None:
    received = bytearray(encode_message(sample(data=b"abc", string="def", uuid=b"u" * 16), 0))
    decoded = decode_message(Sample, 0, received)
    received[:] = bytes(len(received))
    assert (decoded.data, decoded.string, decoded.uuid) == (b"abc", "def", b"u" * 16)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_read(buffer: type[Any]) -> None:
    message = sample(string="text", records=b"records")
    assert decode_message(Sample, 1, buffer(encode_message(message, 1))) == message


def test_a_decoded_list_belongs_to_its_message_alone() -> None:
    encoded = encode_message(DeleteTopicsRequest(timeout_ms=1), 6)
    first, second = (decode_message(DeleteTopicsRequest, 6, encoded) for _ in range(2))
    first.topic_names.append("only here")
    assert second.topic_names == []


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_is_not_declared_has_no_codec(version: int) -> None:
    with pytest.raises(WireError, match="HeartbeatRequest has no version"):
        decode_message(HeartbeatRequest, version, b"")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(WireError, match="HeartbeatRequest has no version"):
        encode_message(heartbeat, version)

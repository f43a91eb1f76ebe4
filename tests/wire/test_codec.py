"""The straight-line codec and the specification agree, for every API in every version, also about what is not valid."""

import struct
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.wire import types
from kwire.wire.codec import SMALL_RECORDS_BYTES, decode_message, encode_message, encoder
from kwire.wire.errors import WireError
from kwire.wire.messages.delete_topics import DeleteTopicsRequest
from kwire.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.schema import ArrayKind, Field, Kind, Message, Struct, Versions, message_of
from kwire.wire.spec import from_plain, spec, to_plain
from tests.wire.cases import CASES, FEW, FEWER, Inner, Sample, case_names, in_every_version, sample
from tests.wire.strategies import instances

FLEXIBLE = [(cls, version) for cls, version in CASES if version in message_of(cls).flexible]
LATER_TAG = 77
CUTS_MAX = 400


def check_agreement(message: Any, version: int) -> None:
    cls, described = type(message), spec(type(message), version)
    encoded = encode_message(message, version)
    assert described.build(to_plain(message)) == encoded
    assert decode_message(cls, version, encoded) == message
    assert from_plain(cls, described.parse(encoded)) == message
    # What follows a message is not its business: Kafka ignores it.
    assert decode_message(cls, version, encoded + b"\xff\x00") == message


def cuts(size: int) -> Iterator[int]:
    """Every place to cut a message short; in a long one both ends and an even spread."""
    if size <= CUTS_MAX:
        return iter(range(size))
    third = CUTS_MAX // 3
    return iter({*range(third), *range(0, size, size // third), *range(size - third, size)})


@in_every_version
def test_codec_and_spec_agree(cls: type[Any], version: int) -> None:
    @FEW
    @given(instances(cls, version))
    def agree(message: Any) -> None:
        check_agreement(message, version)

    agree()


@pytest.mark.parametrize("version", [0, 1])
def test_codec_and_spec_agree_on_fields_of_every_kind(version: int) -> None:
    @settings(FEW, max_examples=60)
    @given(instances(Sample, version))
    def agree(message: Sample) -> None:
        check_agreement(message, version)

    agree()


@in_every_version
def test_a_message_cut_short_anywhere_is_refused(cls: type[Any], version: int) -> None:
    @FEWER
    @given(instances(cls, version))
    def refused(message: Any) -> None:
        encoded = memoryview(encode_message(message, version))
        for cut in cuts(len(encoded)):
            with pytest.raises(WireError):
                decode_message(cls, version, encoded[:cut])

    refused()


@in_every_version
def test_garbled_bytes_are_refused_or_read_but_never_break_the_decoder(cls: type[Any], version: int) -> None:
    """At every place in turn, a length as large, as small and as wrong as lengths can be."""

    @FEWER
    @given(instances(cls, version), st.binary(min_size=1, max_size=4))
    def survives(message: Any, noise: bytes) -> None:
        encoded = encode_message(message, version)
        for lie in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 6, noise):
            for place in cuts(len(encoded)):
                garbled = encoded[:place] + lie + encoded[place + len(lie) :]
                try:
                    decode_message(cls, version, garbled)
                except WireError:
                    continue

    survives()


@given(st.binary(max_size=64), st.sampled_from(CASES))
@settings(FEW, max_examples=300)
def test_noise_is_refused_or_read_but_never_breaks_the_decoder(noise: bytes, case: tuple[type[Any], int]) -> None:
    cls, version = case
    try:
        decoded = decode_message(cls, version, noise)
    except WireError:
        return
    assert decode_message(cls, version, encode_message(decoded, version)) == decoded


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE, ids=case_names(FLEXIBLE))
def test_tagged_fields_of_a_later_release_are_stepped_over(cls: type[Any], version: int) -> None:
    """Every struct of the message, on every level, carries one tag that is not declared."""
    widened = spec(_message_of_later(cls), version)

    @FEWER
    @given(instances(cls, version), st.text(max_size=200))
    def stepped_over(message: Any, later: str) -> None:
        encoded = widened.build(_with_later(to_plain(message), later))
        assert decode_message(cls, version, encoded) == message
        assert from_plain(cls, spec(cls, version).parse(encoded)) == message

    stepped_over()


def _message_of_later(cls: type[Any]) -> type[Any]:
    known = message_of(cls)
    later = Message(known.name, known.key, known.versions, known.flexible, _widened(known.struct))
    return type(known.name, (), {"__message__": later})


def _widened(kind: Struct) -> Struct:
    later = Field("later", types.STRING, Versions.parse("0+"), Versions.parse("none"), LATER_TAG, None)
    fields = [replace(f, kind=_widened_kind(f.kind)) for f in kind.fields]
    return Struct(kind.name, kind.make, (*fields, later))


def _widened_kind(kind: Kind) -> Kind:
    if isinstance(kind, ArrayKind):
        return ArrayKind(_widened(kind.element)) if isinstance(kind.element, Struct) else kind
    return _widened(kind) if isinstance(kind, Struct) else kind


def _with_later(plain: Any, later: str) -> Any:
    if isinstance(plain, list):
        return [_with_later(element, later) for element in plain]
    if isinstance(plain, dict):
        return {**{name: _with_later(value, later) for name, value in plain.items()}, "later": later}
    return plain


# One struct of each kind of length, and where in an otherwise empty Sample its length stands. The decoder must refuse
# the length before it makes room for it.
LENGTHS = [f.name for f in message_of(Sample).struct.at(0) if isinstance(f.kind, types.Varlen | ArrayKind)]


def place_of_length(name: str, version: int) -> int:
    """Where the length of a field stands: the first byte that differs when the field is not empty."""
    kind = next(f.kind for f in message_of(Sample).struct.fields if f.name == name)
    some: Any = "x" if kind is types.STRING else b"x"
    if isinstance(kind, ArrayKind):
        element: Any = {types.STRING: "x", types.BYTES: b"x", types.UUID: bytes(16)}.get(kind.element, 1)  # type: ignore[call-overload]
        some = [Inner()] if isinstance(kind.element, Struct) else [element]
    nothing = type(some)()
    empty = encode_message(sample(**{name: nothing}), version)
    filled = encode_message(sample(**{name: some}), version)
    first = next(place for place, pair in enumerate(zip(empty, filled, strict=False)) if pair[0] != pair[1])
    # A count of 1 differs from 0 in the last byte of a fixed-size length.
    width = 1 if version == 1 else 2 if kind is types.STRING else 4
    return first - width + 1


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("lie", [2**31 - 1, 2**31 - 2, 2**24, -2, -(2**31)])
def test_a_length_that_the_bytes_cannot_hold_is_refused_without_making_room(name: str, lie: int) -> None:
    kind = next(f.kind for f in message_of(Sample).struct.fields if f.name == name)
    layout = ">h" if kind is types.STRING else ">i"
    lie = max(min(lie, 32767), -32768) if kind is types.STRING else lie
    encoded = bytearray(encode_message(sample(**{name: _empty(kind)}), 0)) + bytes(64)
    struct.pack_into(layout, encoded, place_of_length(name, 0), lie)
    _refused_without_making_room(Sample, 0, bytes(encoded))


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(
    "lie", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 5]
)
def test_a_compact_length_that_the_bytes_cannot_hold_is_refused_without_making_room(name: str, lie: bytes) -> None:
    kind = next(f.kind for f in message_of(Sample).struct.fields if f.name == name)
    encoded = encode_message(sample(**{name: _empty(kind)}), 1) + bytes(64)
    place = place_of_length(name, 1)
    _refused_without_making_room(Sample, 1, encoded[:place] + lie + encoded[place + 1 :])


def _empty(kind: Kind) -> Any:
    if isinstance(kind, ArrayKind):
        return []
    return "" if kind is types.STRING else b""


def _refused_without_making_room(cls: type[Any], version: int, encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_message(cls, version, encoded)  # once before measuring: the decoder itself is made on first use
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode_message(cls, version, encoded)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("version", [4, 5])
def test_a_count_is_measured_against_the_smallest_element(version: int) -> None:
    """Ninety-nine bytes behind a count of a hundred names: refused before the first name is read."""
    names = [""] * 100
    encoded = encode_message(DeleteTopicsRequest(topic_names=names, timeout_ms=1), version)
    with pytest.raises(WireError, match="topic_names claims 100"):
        decode_message(DeleteTopicsRequest, version, encoded[:100])


@pytest.mark.parametrize("name", [f.name for f in message_of(Sample).struct.at(0) if 0 not in f.nullable])
@pytest.mark.parametrize("version", [0, 1])
def test_null_is_refused_where_a_field_cannot_be_null(name: str, version: int) -> None:
    kind = next(f.kind for f in message_of(Sample).struct.fields if f.name == name)
    if not isinstance(kind, types.Varlen | ArrayKind) or name == "string_nullable_later":
        return
    encoded = bytearray(encode_message(sample(**{name: _empty(kind)}), version))
    place = place_of_length(name, version)
    null = b"\x00" if version == 1 else b"\xff\xff" if kind is types.STRING else b"\xff\xff\xff\xff"
    encoded[place : place + len(null)] = null
    with pytest.raises(WireError):
        decode_message(Sample, version, encoded)


def test_null_is_read_from_the_version_that_allows_it() -> None:
    assert (
        decode_message(Sample, 1, encode_message(sample(string_nullable_later=None), 1)).string_nullable_later is None
    )


@pytest.mark.parametrize("size", [126, 127, 128, 16382, 16383, 16384, 32767])
@pytest.mark.parametrize("version", [0, 1])
def test_lengths_on_both_sides_of_a_varint_border_agree(size: int, version: int) -> None:
    check_agreement(sample(string="s" * size, data=b"d" * size, bytes_of=[7] * min(size, 16384)), version)


@pytest.mark.parametrize("count", [126, 127, 128])
@pytest.mark.parametrize("version", [0, 1])
def test_counts_on_both_sides_of_a_varint_border_agree(count: int, version: int) -> None:
    check_agreement(
        sample(inners=[Inner(text="i")] * count, strings=["", "a"] * count, uuids=[b"u" * 16] * count), version
    )


@pytest.mark.parametrize("size", [0, SMALL_RECORDS_BYTES - 1, SMALL_RECORDS_BYTES, 100_000])
def test_records_agree_wherever_they_stand(size: int) -> None:
    records = memoryview(bytes(size))
    for version in (0, 1):
        check_agreement(sample(records=records, nullable_records=records), version)
    check_agreement(sample(tagged_records=records), 1)


def test_large_records_leave_the_encoder_as_they_came() -> None:
    records = memoryview(bytes(SMALL_RECORDS_BYTES))
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition, partition])])
    parts = encoder(FetchResponse, 13)(response)
    assert [part for part in parts if part is records] == [records, records]


def test_decoded_records_are_a_view_of_the_received_bytes() -> None:
    received = bytearray(encode_message(sample(records=b"abc"), 0))
    decoded = decode_message(Sample, 0, received)
    received[received.index(b"abc")] = ord("x")
    assert bytes(decoded.records) == b"xbc"


def test_other_bytes_do_not_depend_on_the_received_buffer() -> None:
    received = bytearray(encode_message(sample(data=b"abc", string="def"), 0))
    decoded = decode_message(Sample, 0, received)
    received[:] = bytes(len(received))
    assert (decoded.data, decoded.string) == (b"abc", "def")


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_read(buffer: type[Any]) -> None:
    message = sample(string="text", records=b"records")
    assert decode_message(Sample, 1, buffer(encode_message(message, 1))) == message


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_is_not_declared_has_no_codec(version: int) -> None:
    with pytest.raises(WireError, match="HeartbeatRequest has no version"):
        decode_message(HeartbeatRequest, version, b"")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(WireError, match="HeartbeatRequest has no version"):
        encode_message(heartbeat, version)


def test_text_that_is_not_utf8_is_refused() -> None:
    encoded = encode_message(HeartbeatRequest(group_id="gg", generation_id=1, member_id="m"), 0)
    with pytest.raises(WireError):
        decode_message(HeartbeatRequest, 0, encoded.replace(b"gg", b"\xff\xfe"))


SECTION = {
    "descending": "02 02 01 00 01 01 00",
    "twice": "02 4d 01 00 4d 01 00",
    "longer than its value": "01 00 09 00 00 00 00 00 00 00 00 00",
    "shorter than its value": "01 00 07 00 00 00 00 00 00 00 00",
    "past the end": "01 4d 02 00",
    "more than there are": "03 4d 00 4e 00",
    "a varint without end": "ff ff ff ff ff 01",
}


@pytest.mark.parametrize("section", SECTION.values(), ids=SECTION)
def test_a_wrong_tag_section_is_refused(section: str) -> None:
    encoded = encode_message(sample(), 1)
    assert encoded[-1:] == b"\x00"
    with pytest.raises(WireError):
        decode_message(Sample, 1, encoded[:-1] + bytes.fromhex(section))


def test_tagged_fields_at_their_default_are_not_written() -> None:
    plain = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    assert encode_message(plain, 15)[-1:] == b"\x00"
    told = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c")
    assert encode_message(told, 15)[-5:] == bytes.fromhex("01 00 02 02 63")


@pytest.mark.parametrize("mark", ["80", "fe", "ff"])
def test_a_negative_mark_in_front_of_a_struct_means_null(mark: str) -> None:
    encoded = encode_message(sample(nullable_inner=None), 0)
    absent, present = encoded, encode_message(sample(nullable_inner=Inner()), 0)
    place = next(place for place, pair in enumerate(zip(absent, present, strict=False)) if pair[0] != pair[1])
    decoded = decode_message(Sample, 0, encoded[:place] + bytes.fromhex(mark) + encoded[place + 1 :])
    assert decoded.nullable_inner is None


def test_a_decoded_list_belongs_to_its_message_alone() -> None:
    encoded = encode_message(DeleteTopicsRequest(timeout_ms=1), 6)
    first, second = (decode_message(DeleteTopicsRequest, 6, encoded) for _ in range(2))
    first.topic_names.append("only here")
    assert second.topic_names == []

"""Bytes that are not a message are refused with a WireError, before room is made for what they claim to hold."""

import struct
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from construct import CheckError
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.wire import types
from kwire.wire.codec import ELEMENTS_MAX, STRING_BYTES_MAX, decode_message, encode_message
from kwire.wire.errors import WireError
from kwire.wire.messages.delete_topics import DeleteTopicsRequest
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.produce import ProduceRequest, TopicProduceData
from kwire.wire.schema import ArrayKind, Field, Struct, message_of
from kwire.wire.spec import spec
from tests.support.effort import examples
from tests.wire.cases import CASES, Inner, Sample, checking, every_message, sample
from tests.wire.strategies import FEW, drawn

PLACES_MAX = 150
REFUSAL_BYTES_MAX = 64 * 1024
LIES = [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 6]


def places(size: int) -> Iterable[int]:
    """Every place in a message; in a long one both ends and an even spread between them."""
    if size <= PLACES_MAX:
        return range(size)
    third = PLACES_MAX // 3
    return {*range(third), *range(0, size, size // third), *range(size - third, size)}


@every_message
def test_a_message_cut_short_anywhere_is_refused(cls: type[Any], versions: list[int]) -> None:
    for version in versions:
        with checking(cls, version):
            for message in drawn(cls, version):
                encoded = memoryview(encode_message(message, version))
                for cut in places(len(encoded)):
                    assert _read_or_refuse(cls, version, encoded[:cut]) is None, f"{message}, cut after {cut} bytes"


@every_message
def test_lengths_that_lie_anywhere_never_break_the_decoder(cls: type[Any], versions: list[int]) -> None:
    """Whatever stands at a place is overwritten by a length as large or as small as lengths can be."""
    for version in versions:
        with checking(cls, version):
            for message in drawn(cls, version)[-2:]:
                encoded = encode_message(message, version)
                for lie in LIES:
                    for place in places(len(encoded)):
                        _read_or_refuse(cls, version, encoded[:place] + lie + encoded[place + len(lie) :])


@settings(FEW, max_examples=examples(300))
@given(st.binary(max_size=64), st.sampled_from(CASES))
def test_noise_never_breaks_the_decoder(noise: bytes, case: tuple[type[Any], int]) -> None:
    cls, version = case
    decoded = _read_or_refuse(cls, version, noise)
    if decoded is not None:
        assert decode_message(cls, version, encode_message(decoded, version)) == decoded


def _read_or_refuse(cls: type[Any], version: int, encoded: types.Buffer) -> Any:
    try:
        return decode_message(cls, version, encoded)
    except WireError:
        return None


# The fields of Sample that stand behind a length or count.
LENGTHS = [f for f in message_of(Sample).struct.at(0) if isinstance(f.kind, types.Varlen | ArrayKind)]
every_length = pytest.mark.parametrize("field", LENGTHS, ids=[f.name for f in LENGTHS])


def length_width(field: Field, version: int) -> int:
    return 1 if version == 1 else 2 if field.kind is types.STRING else 4


def with_empty(field: Field, version: int) -> tuple[bytearray, int]:
    """An encoded Sample in which this field is empty, and the place of the field's length."""
    nothing, some = _nothing_and_some(field)
    empty = encode_message(sample(**{field.name: nothing}), version)
    filled = encode_message(sample(**{field.name: some}), version)
    # A length of 1 differs from a length of 0 in its last byte.
    last = next(place for place, byte in enumerate(empty) if byte != filled[place])
    return bytearray(empty), last - length_width(field, version) + 1


def _nothing_and_some(field: Field) -> tuple[Any, Any]:
    if isinstance(field.kind, ArrayKind):
        element = field.kind.element
        return [], [Inner() if isinstance(element, Struct) else element.zero]
    return ("", "x") if field.kind is types.STRING else (b"", b"x")


@every_length
@pytest.mark.parametrize("lie", [2**31 - 1, 2**24, 32767, -2, -32768, -(2**31)])
def test_a_length_that_the_bytes_cannot_hold_is_refused_without_making_room(field: Field, lie: int) -> None:
    encoded, place = with_empty(field, 0)
    width = length_width(field, 0)
    if width == 2:
        lie = min(max(lie, -32768), 32767)
    struct.pack_into(">h" if width == 2 else ">i", encoded, place, lie)
    _refuse_without_making_room(0, encoded)


@every_length
@pytest.mark.parametrize("lie", ["80 80 40", "ff ff ff ff 07", "ff ff ff ff 0f", "ff ff ff ff 7f", "ff ff ff ff ff"])
def test_a_compact_length_that_the_bytes_cannot_hold_is_refused_without_making_room(field: Field, lie: str) -> None:
    encoded, place = with_empty(field, 1)
    encoded[place : place + 1] = bytes.fromhex(lie)
    _refuse_without_making_room(1, encoded)


def _refuse_without_making_room(version: int, encoded: bytearray) -> None:
    with pytest.raises(WireError):
        decode_message(Sample, version, encoded)  # once before measuring: decoders are made on first use
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode_message(Sample, version, encoded)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < REFUSAL_BYTES_MAX


@pytest.mark.parametrize("version", [1, 4])
def test_a_count_is_measured_against_the_smallest_element(version: int) -> None:
    encoded = encode_message(DeleteTopicsRequest(topic_names=[""] * 100, timeout_ms=1), version)
    # Behind the names stand four bytes of timeout, and in version 4 one of tags.
    with pytest.raises(WireError, match="topic_names has the count or length 100"):
        decode_message(DeleteTopicsRequest, version, encoded[: -len(encoded) // 10])


@pytest.mark.parametrize("version", [0, 1])
@every_length
def test_null_is_read_where_it_is_allowed_and_refused_elsewhere(field: Field, version: int) -> None:
    encoded, place = with_empty(field, version)
    width = length_width(field, version)
    encoded[place : place + width] = b"\x00" if version == 1 else b"\xff" * width
    if version in field.nullable:
        assert getattr(decode_message(Sample, version, encoded), field.name) is None
    else:
        with pytest.raises(WireError):
            decode_message(Sample, version, encoded)


@pytest.mark.parametrize("version", [0, 4])
def test_text_that_is_not_utf8_is_refused(version: int) -> None:
    encoded = encode_message(HeartbeatRequest(group_id="gg", generation_id=1, member_id="m"), version)
    with pytest.raises(WireError):
        decode_message(HeartbeatRequest, version, encoded.replace(b"gg", b"\xff\xfe"))


TAG_SECTIONS = {
    "descending tags": "02 4e 00 4d 00",
    "one tag twice": "02 4d 00 4d 00",
    "size above its value": "01 00 09 00 00 00 00 00 00 00 00 00",
    "size below its value": "01 00 07 00 00 00 00 00 00 00 00",
    "size past the end": "01 4d 02 00",
    "more tags than there are": "03 4d 00 4e 00",
    "a varint without end": "ff ff ff ff ff 01",
}


@pytest.mark.parametrize("section", TAG_SECTIONS.values(), ids=TAG_SECTIONS)
def test_a_wrong_tag_section_is_refused(section: str) -> None:
    encoded = encode_message(sample(), 1)
    assert encoded[-1:] == b"\x00"
    with pytest.raises(WireError):
        decode_message(Sample, 1, encoded[:-1] + bytes.fromhex(section))


def test_more_elements_than_any_honest_message_has_are_refused() -> None:
    """Topics without a name or partitions take three bytes each: a large frame of them would fill the memory."""
    topic = TopicProduceData(name="", partition_data=[])
    honest = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic] * ELEMENTS_MAX)
    assert len(decode_message(ProduceRequest, 9, encode_message(honest, 9)).topic_data) == ELEMENTS_MAX
    greedy = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic] * (ELEMENTS_MAX + 1))
    with pytest.raises(WireError, match="topic_data"):
        decode_message(ProduceRequest, 9, encode_message(greedy, 9))


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_longer_than_kafka_takes_is_refused_in_both_encodings(version: int) -> None:
    """The two-byte length of older versions cannot say more; the compact one could."""
    longest = HeartbeatRequest(group_id="g", member_id="m" * STRING_BYTES_MAX, generation_id=1)
    encoded = encode_message(longest, version)
    assert decode_message(HeartbeatRequest, version, encoded) == longest
    assert spec(HeartbeatRequest, version).parse(encoded).member_id == longest.member_id
    if version == 4:
        longest.member_id += "m"
        encoded = encode_message(longest, version)
        with pytest.raises(WireError):
            decode_message(HeartbeatRequest, version, encoded)
        with pytest.raises(CheckError):
            spec(HeartbeatRequest, version).parse(encoded)

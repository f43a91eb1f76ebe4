"""Valid frames of every API and version, spoilt: bits flipped, ends cut, lengths that lie, pieces of other messages.

Whatever comes of it is read, or refused with a WireError; the executable specification agrees; what was read can be
written and read again. `scripts/fuzz` does the same a million times over, with frames of stock clients.
"""

import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.wire.apis import APIS
from kwire.wire.codec import ELEMENTS_MAX, decode_message, encode_message
from kwire.wire.connection import ServerConnection
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire.wire.errors import WireError
from kwire.wire.frame import ReceiveMemory
from kwire.wire.schema import Api
from kwire.wire.spec import from_plain, spec
from storage.batch.compression import decompress
from storage.batch.format import CRC_POSITION, CRC_START, GZIP, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, decompress_records, read_records
from storage.batch.record_checks import RecordLimits, check_records
from storage.errors import StorageError
from tests.support.effort import examples
from tests.wire.cases import CASES, sample
from tests.wire.strategies import FEW, instances

CHANGES_MAX = 3
MEMORY_BYTES = 1 << 20
FRAME_BYTES_MAX = 1 << 18
BUDGET_BYTES = 1 << 20
KEPT_BYTES_MAX = 64 * 1024

LIES = [
    *(struct.pack(">i", number) for number in (-1, -2, 0, 1, 0x7FFF, 2**31 - 1, -(2**31))),
    *(struct.pack(">h", number) for number in (-1, -2, 0, 0x7FFF, -0x8000)),
    *(bytes.fromhex(text) for text in ("00", "80", "ff7f", "ffffffff07", "ffffffff0f", "ffffffffff", "80" * 11)),
]


class Change:
    """One way to spoil some bytes, at a place given as a share of their length."""

    def __init__(self, way: str, place: float, lie: bytes, number: int) -> None:
        self.way, self.place, self.lie, self.number = way, place, lie, number

    def __repr__(self) -> str:
        return f"{self.way} at {self.place:.3f} ({self.number}, {self.lie.hex()})"

    def made(self, data: bytes, other: bytes) -> bytes:
        at = int(self.place * len(data))
        before, behind = data[:at], data[at:]
        match self.way:
            case "flip":
                return before + bytes(one ^ 1 << self.number % 8 for one in behind[:1]) + behind[1:]
            case "cut":
                return before
            case "lie":
                return before + self.lie + behind[len(self.lie) :]
            case "insert":
                return before + self.lie + behind
            case "repeat":
                return before + behind[: self.number] * 2 + behind[self.number :]
            case "leave out":
                return before + behind[self.number :]
        assert self.way == "splice"
        return before + other[at % (len(other) + 1) :]


changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(["flip", "cut", "lie", "insert", "repeat", "leave out", "splice"]),
        st.floats(0, 1),
        st.sampled_from(LIES),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=CHANGES_MAX,
)


def spoilt(data: bytes, made: Sequence[Change], other: bytes = b"") -> bytes:
    for change in made:
        data = change.made(data, other)
    return data


def framed(api: Api, version: int, body: bytes) -> bytes:
    tags = b"\x00" if version >= api.first_flexible else b""
    head = struct.pack(">hhih", api.key, version, 7, 1) + b"c" + tags
    return struct.pack(">i", len(head) + len(body)) + head + body


@st.composite
def spoilt_messages(draw: st.DrawFn) -> tuple[type[Any], int, bytes]:
    cls, version = draw(st.sampled_from(CASES))
    other_cls, other_version = draw(st.sampled_from(CASES))
    encoded = encode_message(draw(instances(cls, version)), version)
    other = encode_message(draw(instances(other_cls, other_version)), other_version)
    return cls, version, spoilt(encoded, draw(changes), other)


@settings(FEW, max_examples=examples(150))
@given(spoilt_messages())
def test_a_spoilt_message_is_refused_or_read_and_the_specification_agrees(case: tuple[type[Any], int, bytes]) -> None:
    cls, version, data = case
    try:
        quick = decode_message(cls, version, data)
    except WireError:
        with pytest.raises(ConstructError):
            spec(cls, version).parse(data)
        return
    encoded = encode_message(quick, version)
    assert encode_message(from_plain(cls, spec(cls, version).parse(data)), version) == encoded
    assert encode_message(decode_message(cls, version, encoded), version) == encoded


@st.composite
def spoilt_streams(draw: st.DrawFn) -> bytes:
    api = draw(st.sampled_from(list(APIS.values())))
    version = draw(st.integers(api.first_version, api.last_version))
    frame = framed(api, version, encode_message(draw(instances(api.request, version)), version))
    damaged = spoilt(frame, draw(changes), frame)
    if draw(st.booleans()) and len(damaged) >= 4:
        damaged = struct.pack(">i", len(damaged) - 4) + damaged[4:]
    return frame + damaged + frame


@settings(FEW, max_examples=examples(150))
@given(spoilt_streams(), st.integers(1, 700))
def test_a_connection_reads_spoilt_frames_or_refuses_them_and_loses_no_memory(data: bytes, piece_bytes: int) -> None:
    memory = ReceiveMemory(MEMORY_BYTES)
    connection = ServerConnection(APIS, memory, FRAME_BYTES_MAX)
    position = 0
    try:
        while position < len(data):
            room = connection.reader.buffer()
            piece = data[position : position + min(piece_bytes, len(room))]
            room[: len(piece)] = piece
            connection.reader.received(len(piece))
            position += len(piece)
            _read_all(connection)
    except WireError:
        pass
    connection.reader.close()
    assert memory.used_bytes == 0


def _read_all(connection: ServerConnection) -> None:
    try:
        while (frame := connection.reader.next_frame()) is not None:
            request = connection.open(frame)
            if request.body is not None:
                decode_message(request.api.request, request.version, request.body)
    finally:
        connection.reader.settle()


@settings(FEW, max_examples=examples(100))
@given(st.sampled_from([ConsumerProtocolSubscription, ConsumerProtocolAssignment]), st.integers(0, 3), st.data())
def test_spoilt_blobs_of_consumers_are_refused_or_read(cls: type[Any], version: int, data: st.DataObject) -> None:
    blob = spoilt(encode_message(data.draw(instances(cls, version)), version), data.draw(changes))
    try:
        decode_message(cls, version, blob)
    except WireError:
        return


def sealed(batch: bytes) -> memoryview:
    """The bytes with a length and a CRC that fit, so that what is behind them is looked at."""
    made = bytearray(batch)
    if len(made) > CRC_POSITION + 4:
        struct.pack_into(">i", made, 8, len(made) - 12)
        made[16] = 2
        struct.pack_into(">I", made, CRC_POSITION, crc32c(made[CRC_START:]))
    return memoryview(made)


RECORDS = [
    Record(b"k", b"v" * 50, 1_000, [("h", b"x"), ("n", None)]),
    Record(None, None, 1_005),
    Record(b"", b"", 999),
]


@settings(FEW, max_examples=examples(150))
@given(st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]), changes)
def test_a_spoilt_batch_is_read_or_refused_by_everyone_who_looks_at_it(codec: int, made: list[Change]) -> None:
    view = sealed(spoilt(bytes(build_batch(RECORDS, compression=codec)), made))

    def check(limits: RecordLimits) -> None:
        header = check_batch(view)
        check_records(decompress_records(view, header, BUDGET_BYTES), header, limits)

    for look in (
        lambda: check(RecordLimits(earliest_ms=0, latest_ms=2**62)),
        lambda: check(RecordLimits(needs_keys=True)),
        lambda: list(read_records(view, BUDGET_BYTES)),
    ):
        try:
            look()
        except StorageError:
            continue


@settings(FEW, max_examples=examples(100))
@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), changes, st.integers(0, 200))
def test_a_spoilt_payload_never_unfolds_beyond_its_budget(codec: int, made: list[Change], budget_bytes: int) -> None:
    payload = bytes(build_batch(RECORDS, compression=codec))[61:]
    try:
        assert len(decompress(codec, spoilt(payload, made), budget_bytes)) <= budget_bytes
    except StorageError:
        return


def test_tagged_fields_count_against_the_bound_on_elements() -> None:
    """Unknown tags leave nothing behind, but stepping over millions of them would keep everybody waiting."""
    encoded = encode_message(sample(), 1)
    few, many = _tag_section(1000), _tag_section(ELEMENTS_MAX + 1)
    cls = type(sample())
    assert decode_message(cls, 1, encoded[:-1] + few) == sample()
    with pytest.raises(WireError, match="tagged fields"):
        decode_message(cls, 1, encoded[:-1] + many)


def test_elements_and_tags_share_one_bound() -> None:
    half = sample(strings=[""] * (ELEMENTS_MAX // 2 + 1))
    encoded = encode_message(half, 1)
    cls = type(half)
    assert len(decode_message(cls, 1, encoded).strings) == ELEMENTS_MAX // 2 + 1
    with pytest.raises(WireError, match="tagged fields"):
        decode_message(cls, 1, encoded[:-1] + _tag_section(ELEMENTS_MAX // 2))


def _tag_section(count: int) -> bytes:
    """So many tags that nobody knows, each without a value."""
    first = 1000
    return b"".join([_uvarint(count), *(_uvarint(tag) + b"\x00" for tag in range(first, first + count))])


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def test_a_varint_without_end_is_refused_by_codec_and_specification_alike() -> None:
    encoded = encode_message(sample(), 1)[:-1] + b"\x80" * 100_000
    cls = type(sample())
    with pytest.raises(WireError):
        decode_message(cls, 1, encoded)
    with pytest.raises(ConstructError):
        spec(cls, 1).parse(encoded)


def test_a_large_array_of_uuids_leaves_nothing_behind_in_the_struct_module() -> None:
    """`struct` keeps a hundred formats; a format as long as the array would be kept with them."""
    sizes = range(20_000, 20_010)
    encoded = [encode_message(sample(uuids=[bytes(16)] * size), 0) for size in sizes]
    cls = type(sample())
    decode_message(cls, 0, encoded[0])  # once before measuring: decoders are made on first use
    tracemalloc.start()
    try:
        assert [len(decode_message(cls, 0, one).uuids) for one in encoded] == list(sizes)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < KEPT_BYTES_MAX


CORPUS = Path(__file__).parents[2] / "scripts" / "fuzzing" / "corpus"
CORPUS_BYTES_MAX = 300_000


def test_the_corpus_of_captured_frames_is_small_and_can_be_read() -> None:
    """What `scripts/fuzz` begins with: requests of stock clients, in hex."""
    files = sorted(CORPUS.glob("*.hex"))
    assert len(files) > 30
    assert sum(path.stat().st_size for path in files) < CORPUS_BYTES_MAX
    for path in files:
        for line in path.read_text(encoding="ascii").splitlines():
            frame = bytes.fromhex(line)
            assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
            request = ServerConnection(APIS, ReceiveMemory(MEMORY_BYTES), FRAME_BYTES_MAX).open(memoryview(frame)[4:])
            assert request.body is not None
            decode_message(request.api.request, request.version, request.body)

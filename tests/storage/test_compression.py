"""The codecs: both ways, both shapes of snappy, and no more bytes than the budget."""

import gzip
import tracemalloc
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch.compression import compress, decompress
from storage.batch.format import GZIP, LZ4, SNAPPY, ZSTD
from storage.errors import BudgetExceeded, DecompressionFailed, UnsupportedCompression
from tests.support.effort import examples

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(data=st.binary(max_size=300), repeats=st.integers(1, 2000))
def test_what_goes_in_comes_out(codec: int, data: bytes, repeats: int) -> None:
    data = data * repeats
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_budget_is_exact(codec: int) -> None:
    data = b"0123456789" * 20_000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(BudgetExceeded):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30))
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_cleanly(codec: int, data: bytes) -> None:
    with suppress(DecompressionFailed, BudgetExceeded):
        assert len(decompress(codec, data, MEBIBYTE)) <= MEBIBYTE


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_cut_short_is_refused(codec: int) -> None:
    data = b"0123456789" * 20_000
    packed = compress(codec, data)
    for size in (len(packed) - 1, len(packed) // 2, 1):
        try:
            found = decompress(codec, packed[:size], MEBIBYTE)
        except DecompressionFailed:
            continue
        # A zstd stream that just stops is no error to its library; the records then do not fit their count.
        assert codec == ZSTD
        assert len(found) < len(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_fill_the_memory(codec: int) -> None:
    bombs = {
        GZIP: gzip.compress(bytes(64 * MEBIBYTE)),
        SNAPPY: bytes(cramjam.snappy.compress_raw(bytes(64 * MEBIBYTE))),
        LZ4: lz4.frame.compress(bytes(64 * MEBIBYTE)),
        # This one says how large it is, which makes the library ignore its own limit.
        ZSTD: zstandard.ZstdCompressor(write_content_size=True).compress(bytes(64 * MEBIBYTE)),
    }
    tracemalloc.start()
    try:
        with pytest.raises(BudgetExceeded):
            decompress(codec, bombs[codec], MEBIBYTE)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEBIBYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_what_comes_out_is_not_copied_once_more(codec: int) -> None:
    size = 16 * MEBIBYTE
    packed = compress(codec, bytes(size))
    tracemalloc.start()
    try:
        assert len(decompress(codec, packed, size)) == size
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()


def test_raw_snappy_is_read_too() -> None:
    data = b"0123456789" * 1000
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_a_lying_snappy_block_is_refused() -> None:
    packed = bytearray(compress(SNAPPY, b"0123456789" * 1000))
    packed[16:20] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(DecompressionFailed):
        decompress(SNAPPY, packed, MEBIBYTE)
    packed[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(DecompressionFailed):
        decompress(SNAPPY, packed, MEBIBYTE)


def test_several_gzip_members_are_one_payload() -> None:
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 100) == b"onetwo"


def test_too_many_gzip_members_are_refused_soon() -> None:
    """Each costs a decoder, and what is behind it must not be copied each time: a mebibyte would take minutes."""
    packed = gzip.compress(b"") * (MEBIBYTE // 20)
    with pytest.raises(DecompressionFailed, match="members"):
        decompress(GZIP, packed, MEBIBYTE)


@pytest.mark.parametrize("codec", CODECS)
def test_no_payload_at_all_is_refused_or_empty(codec: int) -> None:
    try:
        assert decompress(codec, b"", MEBIBYTE) == b""
    except DecompressionFailed:
        assert codec != ZSTD


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(GZIP, [-1, *range(1, 10)]), (LZ4, range(1, 18)), (ZSTD, [-131072, -1, *range(1, 23)])],
    ids=["gzip", "lz4", "zstd"],
)
def test_every_level_of_kafka_is_written_and_read(codec: int, levels: list[int]) -> None:
    data = b"".join(b"%d " % (number * 7919 % 10_007) for number in range(2_000))
    for level in levels:
        assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_level_nine_of_lz4_is_its_fast_mode_as_in_kafka() -> None:
    data = b"".join(b"%d " % (number * 7919 % 10_007) for number in range(5_000))
    assert compress(LZ4, data, 9) == compress(LZ4, data)
    assert len(compress(LZ4, data, 9)) > len(compress(LZ4, data, 8))
    assert compress(LZ4, data, 12) == compress(LZ4, data, 17)


def test_lz4_frames_are_what_java_readers_take() -> None:
    packed = compress(LZ4, b"0123456789" * 20_000)
    about = lz4.frame.get_frame_info(packed)
    assert not about["block_linked"]
    assert about["block_size"] == 64 * 1024
    assert not about["content_checksum"]
    assert about["content_size"] == 0


def test_unknown_codecs_are_refused() -> None:
    for codec in (0, 5, 7):
        with pytest.raises(UnsupportedCompression):
            compress(codec, b"")
        with pytest.raises(UnsupportedCompression):
            decompress(codec, b"", 10)

"""Compression and decompression with Kafka's four codecs. The caller's budget bounds the decompressed size.

Decompression streams and counts the output. It does not trust sizes in the payload's own header, because the payload
may be hostile. The work grows with the input and output bytes, not with the number of members, blocks and frames.
Output is gathered in a ``BytesIO``, which returns it without a copy: copying megabytes would hold the interpreter lock
for milliseconds, even in a thread. Snappy has two framings: raw (librdkafka and others) and that of the Java library
(xerial). Decompression accepts both. Compression writes the Java framing.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Final, Protocol, cast

import cramjam
import lz4.frame
import zstandard

from storage.batch.format import GZIP, LZ4, SNAPPY, ZSTD
from storage.errors import BudgetExceeded, DecompressionFailed, UnsupportedCompression

BytesLike = bytes | bytearray | memoryview

_CHUNK_BYTES: Final = 64 * 1024
# Input is passed to gzip in pieces, because at the end of each member zlib copies the input that follows it.
_GZIP_INPUT_BYTES: Final = 4 * 1024
# Each member needs a new decoder. Kafka clients write one member.
_GZIP_MEMBERS_MAX: Final = 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")

_GZIP_WBITS: Final = 31

# Kafka's level 9 of lz4 is the fast mode. All other levels are the slow mode, which has the levels 3 to 12.
_LZ4_FAST_LEVEL: Final = 9
_LZ4_SLOW_LEVELS: Final = (3, 12)


class _RawSnappy(Protocol):
    def compress_raw(self, data: BytesLike) -> object: ...
    def decompress_raw(self, data: BytesLike) -> object: ...
    def decompress_raw_len(self, data: BytesLike) -> int: ...


_snappy = cast(_RawSnappy, cramjam.snappy)


def compress(codec: int, data: BytesLike, level: int | None = None) -> bytes:
    """Compress ``data`` as Kafka clients do. ``level`` has the meaning of ``compression.<codec>.level``."""
    if codec == GZIP:
        return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WBITS)
    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        return _compress_lz4(data, _LZ4_FAST_LEVEL if level is None else level)
    if codec == ZSTD:
        # A new compressor for each call, because threads must not share a compressor.
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise UnsupportedCompression(f"codec {codec} does not exist")


def decompress(codec: int, data: BytesLike, budget_bytes: int) -> bytes:
    """Decompress the payload. Raises :class:`BudgetExceeded` as soon as the output exceeds the budget."""
    try:
        if codec == GZIP:
            return _decompress_gzip(data, budget_bytes)
        if codec == SNAPPY:
            return _decompress_snappy(data, budget_bytes)
        if codec == LZ4:
            return _decompress_lz4(data, budget_bytes)
        if codec == ZSTD:
            return _decompress_zstd(data, budget_bytes)
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise DecompressionFailed(f"codec {codec}: {error}") from error
    raise UnsupportedCompression(f"codec {codec} does not exist")


def _over_budget(budget_bytes: int) -> BudgetExceeded:
    return BudgetExceeded(f"the payload decompresses to more than {budget_bytes} bytes")


def _decompress_gzip(data: BytesLike, budget_bytes: int) -> bytes:
    out = BytesIO()
    view = memoryview(data)
    position, size = 0, len(view)
    for _ in range(_GZIP_MEMBERS_MAX):  # a gzip stream may be several members in a row
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        while not member.eof:
            if position == size:
                raise DecompressionFailed("the gzip stream is truncated")
            piece: BytesLike = view[position : position + _GZIP_INPUT_BYTES]
            position += len(piece)
            # Four kilobytes can decompress to four megabytes. One byte above the budget shows that the budget is
            # exceeded.
            while piece:
                out.write(member.decompress(piece, min(_CHUNK_BYTES, budget_bytes - out.tell() + 1)))
                if out.tell() > budget_bytes:
                    raise _over_budget(budget_bytes)
                piece = member.unconsumed_tail
        position -= len(member.unused_data)
        if position == size:
            return out.getvalue()
    raise DecompressionFailed(f"the gzip stream has more than {_GZIP_MEMBERS_MAX} members")


def _compress_xerial(data: BytesLike) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(_snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))  # type: ignore[arg-type]
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(data: BytesLike, level: int) -> bytes:
    if level == _LZ4_FAST_LEVEL:
        library_level = 0
    else:
        lowest, highest = _LZ4_SLOW_LEVELS
        library_level = min(max(level, lowest), highest)
    # Java producers use these options. The Java reader supports independent blocks only.
    packed = lz4.frame.compress(
        data,
        compression_level=library_level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return bytes(packed)


def _decompress_snappy(data: BytesLike, budget_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, budget_bytes)
    out = BytesIO()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + _LENGTH.size > len(view):
            raise DecompressionFailed("a snappy block has no length")
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if length < 0 or length > len(view) - position:
            raise DecompressionFailed("a snappy block is longer than its payload")
        out.write(_decompress_snappy_block(view[position : position + length], budget_bytes - out.tell()))
        position += length
    return out.getvalue()


def _decompress_snappy_block(block: memoryview, budget_bytes: int) -> bytes:
    data = bytes(block)
    # A raw block begins with its decompressed length, and the decoder refuses a block whose length is wrong.
    if _snappy.decompress_raw_len(data) > budget_bytes:
        raise _over_budget(budget_bytes)
    return bytes(_snappy.decompress_raw(data))  # type: ignore[call-overload, no-any-return]


def _decompress_lz4(data: BytesLike, budget_bytes: int) -> bytes:
    out = BytesIO()
    decoder = lz4.frame.LZ4FrameDecompressor()
    rest = bytes(data)
    while not decoder.eof:
        # The decoder copies its remaining input at each call. Pieces that grow keep the number of calls small.
        piece = decoder.decompress(rest, max_length=max(_CHUNK_BYTES, out.tell()))
        out.write(piece)
        if out.tell() > budget_bytes:
            raise _over_budget(budget_bytes)
        if not piece and decoder.needs_input and not decoder.eof:
            raise DecompressionFailed("the lz4 frame is truncated")
        rest = b""
    return out.getvalue()


def _decompress_zstd(data: BytesLike, budget_bytes: int) -> bytes:
    out = BytesIO()
    with zstandard.ZstdDecompressor().stream_reader(bytes(data), read_across_frames=True) as reader:
        while piece := reader.read(_CHUNK_BYTES):
            out.write(piece)
            if out.tell() > budget_bytes:
                raise _over_budget(budget_bytes)
    return out.getvalue()

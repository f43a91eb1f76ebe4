"""Runs a case on one of the parsers of the protocol and of the log.

The first byte of a case selects the parser, so that an engine can also mutate this selection:

    0..95     a connection: a stream of frames, received in pieces; header and body of each frame are decoded
    96..175   one message (the next two bytes select class and version): decoded, encoded and decoded again
    176..215  a record batch with corrected length and CRC, decoded as by Produce and by compaction
    216..231  a compressed payload (the next byte selects the codec)
    232..247  a record of the group coordinator's topic, decoded as at the start of the server
    248..255  one message, decoded with the executable specification and with the codec; the results must be equal
"""

import contextlib
import struct
from typing import Any

from construct import Construct, ConstructError
from crc32c import crc32c

from fuzzing.examples import CASES
from kwire.coordinator.group.records import decode_record
from kwire.wire.apis import APIS
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.connection import ServerConnection
from kwire.wire.errors import WireError
from kwire.wire.frame import ReceiveMemory
from kwire.wire.spec import from_plain, spec
from storage.batch.compression import decompress
from storage.batch.record_batch import check_batch, decompress_records, read_records
from storage.batch.record_checks import RecordLimits, check_records
from storage.errors import StorageError

STREAM, MESSAGE, BATCH, PAYLOAD, GROUP_RECORD, SPEC = 0, 96, 176, 216, 232, 248
FRAME_BYTES_MAX = 1024 * 1024
RECEIVED_BYTES_MAX = 4 * 1024 * 1024
PIECE_BYTES = 1500
BUDGET_BYTES = 1024 * 1024
CODECS = 6

_memory = ReceiveMemory(RECEIVED_BYTES_MAX)
_specs: dict[tuple[type[Any], int], Construct] = {}


def warm_up() -> None:
    """Create all objects that are created on first use, so that they do not count as time or memory of a case."""
    _specs.update({(cls, version): spec(cls, version) for cls, version in CASES})


def run(case: bytes) -> None:
    """Run one case. Every exception that it raises is a defect."""
    if not case:
        return
    kind, data = case[0], case[1:]
    if kind < MESSAGE:
        _stream(data)
    elif kind < BATCH:
        _message(data)
    elif kind < PAYLOAD:
        _batch(data)
    elif kind < GROUP_RECORD:
        _payload(data)
    elif kind < SPEC:
        _group_record(data)
    else:
        _through_spec(data)


def case_of_stream(frames: bytes) -> bytes:
    return bytes((STREAM,)) + frames


def case_of_message(number: int, encoded: bytes, kind: int = MESSAGE) -> bytes:
    """Return the case of a message. `number` is the index of its class and version in CASES."""
    return bytes((kind,)) + struct.pack(">H", number) + encoded


def _stream(data: bytes) -> None:
    connection = ServerConnection(APIS, _memory, FRAME_BYTES_MAX)
    reader, position = connection.reader, 0
    try:
        while position < len(data):
            room = reader.buffer()
            piece = data[position : position + min(len(room), PIECE_BYTES)]
            if not piece:  # No receive memory is left. A server would stop reading here.
                return
            room[: len(piece)] = piece
            reader.received(len(piece))
            position += len(piece)
            try:
                while (frame := reader.next_frame()) is not None:
                    request = connection.open(frame)
                    if request.body is not None:
                        _read_twice(request.api.request, request.version, request.body)
            finally:
                reader.settle()
    except WireError:
        pass
    finally:
        reader.close()
    assert _memory.used_bytes == 0, f"{_memory.used_bytes} bytes of receive memory are lost"


def _chosen(data: bytes) -> tuple[type[Any], int]:
    return CASES[int.from_bytes(data[:2]) % len(CASES)]


def _message(data: bytes) -> None:
    with contextlib.suppress(WireError):
        _read_twice(*_chosen(data), data[2:])


def _read_twice(cls: type[Any], version: int, data: bytes | memoryview) -> None:
    """Check that a decoded message can be encoded, and that decoding it again gives the same message."""
    decoded = decode_message(cls, version, data)
    encoded = encode_message(decoded, version)
    try:
        again = encode_message(decode_message(cls, version, encoded), version)
    except WireError as error:
        raise AssertionError(f"{cls.__name__} {version} is not read as it was written") from error
    assert again == encoded, f"{cls.__name__} {version} is not written as it was read"


def _batch(data: bytes) -> None:
    batch = bytearray(data)
    if len(batch) >= 61:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    view = memoryview(batch)
    for look in (_checked, _unfolded):
        with contextlib.suppress(StorageError):
            look(view)


def _checked(view: memoryview) -> None:
    header = check_batch(view)
    body = decompress_records(view, header, BUDGET_BYTES)
    for limits in (RecordLimits(), RecordLimits(needs_keys=True), RecordLimits(earliest_ms=0, latest_ms=2**62)):
        with contextlib.suppress(StorageError):
            check_records(body, header, limits)


def _unfolded(view: memoryview) -> None:
    for _ in read_records(view, BUDGET_BYTES):
        pass


def _payload(data: bytes) -> None:
    if data:
        with contextlib.suppress(StorageError):
            assert len(decompress(data[0] % CODECS, data[1:], BUDGET_BYTES)) <= BUDGET_BYTES


def _group_record(data: bytes) -> None:
    key_bytes = data[0] if data else 0
    key, value = data[1 : 1 + key_bytes], data[1 + key_bytes :]
    with contextlib.suppress(WireError):
        decode_record(key, value or None)


def _through_spec(data: bytes) -> None:
    cls, version = _chosen(data)
    body = data[2:]
    try:
        slow = from_plain(cls, _specs[cls, version].parse(body))
    except ConstructError:
        slow = None
    try:
        quick = decode_message(cls, version, body)
    except WireError:
        quick = None
    assert (slow is None) == (quick is None), f"{cls.__name__} {version}: codec and specification do not agree"
    if slow is not None:
        assert encode_message(slow, version) == encode_message(quick, version)

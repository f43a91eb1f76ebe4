"""Produces batches of about 64 KiB, whose records have random keys. Kafka's load tool cannot produce keys.

It is a separate program (`python -m benchmark.log.keyed_fill --help`). It has up to UNDER_WAY_MAX batches in flight,
and sends as fast as the server answers or at a fixed rate.
"""

import argparse
import json
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass

import crc32c

from benchmark.wire import FRAME_LENGTH, ProduceCall, WireError, connect, varint

SILENCE_SECONDS = 60
UNDER_WAY_MAX = 5  # The default of the Java producer.
BATCH_RECORDS = 60  # Below 64, an offset delta has one byte, so all records have the same length.
KEY_BYTES = 8
RECORDS_MAX = 1_000_000_000


@dataclass(frozen=True)
class Filled:
    records: int
    size_bytes: int
    seconds: float


class KeyedBatches:
    """Builds batches of records whose key and value together have `record_size` bytes."""

    def __init__(self, keys: int, record_size: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._keys = keys
        value = self._draw.randbytes(record_size - KEY_BYTES)
        self._after_key = varint(len(value)) + value + varint(0)
        heads = [b"\0" + varint(0) + varint(delta) + varint(KEY_BYTES) for delta in range(BATCH_RECORDS)]
        size = len(heads[0]) + KEY_BYTES + len(self._after_key)
        self._before_key = [varint(size) + head for head in heads]

    def build(self) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        draw, keys, after = self._draw.randrange, self._keys, self._after_key
        pieces = [piece for head in self._before_key for piece in (head, b"%0*d" % (KEY_BYTES, draw(keys)), after)]
        header = struct.pack(">hiqqqhii", 0, BATCH_RECORDS - 1, now_ms, now_ms, -1, -1, -1, BATCH_RECORDS)
        checked = b"".join([header, *pieces])
        protected = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked)) + checked
        return struct.pack(">qi", 0, len(protected)) + protected


def fill(arguments: argparse.Namespace) -> Filled:
    batches = KeyedBatches(arguments.keys, arguments.record_size, arguments.seed)
    connection = connect((arguments.host, arguments.port), SILENCE_SECONDS)
    under_way: deque[ProduceCall] = deque()
    records = size_bytes = batch_count = 0
    watched = [sys.stdin] if arguments.stop_with_stdin else []
    started = time.perf_counter()
    while records < arguments.records:
        batch = batches.build()
        call = ProduceCall.build(arguments.topic, batch, batch_count % arguments.partitions)
        connection.sendall(call.frame)
        under_way.append(call)
        batch_count += 1
        records += BATCH_RECORDS
        size_bytes += len(batch)
        if len(under_way) >= UNDER_WAY_MAX:
            under_way.popleft().base_offset(next_answer(connection))
        if watched or arguments.bytes_per_second:
            pause = size_bytes / arguments.bytes_per_second if arguments.bytes_per_second else 0.0
            stop, _, _ = select.select(watched, [], [], max(0.0, started + pause - time.perf_counter()))
            if stop:
                break
    while under_way:
        under_way.popleft().base_offset(next_answer(connection))
    connection.close()
    return Filled(records, size_bytes, time.perf_counter() - started)


def next_answer(connection: socket.socket) -> bytes:
    """Read exactly one frame. The next response may already have arrived."""
    prefix = connection.recv(FRAME_LENGTH.size, socket.MSG_WAITALL)
    if len(prefix) < FRAME_LENGTH.size:
        raise WireError("the server closed the connection")
    (size,) = FRAME_LENGTH.unpack(prefix)
    body = connection.recv(size, socket.MSG_WAITALL)
    if len(body) < size:
        raise WireError("the server closed the connection in the middle of an answer")
    return prefix + body


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.log.keyed_fill", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--records", type=int, default=RECORDS_MAX)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--record-size", type=int, default=1024, help="size of key and value")
    parser.add_argument("--bytes-per-second", type=float, default=0.0, help="0: as fast as possible")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input is closed")
    arguments = parser.parse_args()
    if not 0 < arguments.records <= RECORDS_MAX or arguments.record_size <= KEY_BYTES or arguments.keys < 1:
        parser.error(f"1 to {RECORDS_MAX} records of more than {KEY_BYTES} bytes, at least one key")
    json.dump(asdict(fill(arguments)), sys.stdout)


if __name__ == "__main__":
    main()

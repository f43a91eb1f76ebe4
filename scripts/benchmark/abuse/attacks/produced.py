"""Batches with very many small records, which the server checks one by one, or from which it reads the last one."""

import gzip
import struct
import time
from functools import cache

import crc32c

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.abuse.http import ask, events_path, head
from benchmark.admin import Admin
from benchmark.wire import ACKS_ALL, PRODUCE, PRODUCE_VERSION, ProduceCall, read_frame, request_frame, varint

GZIP = 1
GZIP_LEVEL = 1
RECORDS_PER_BATCH = 100_000
COMPACTED, DEEP = "abused-compacted", "abused-deep"
BATCH_BYTES_MAX = 100_000_000


@cache
def keyed_batch(count: int) -> bytes:
    """Return a compressed batch of `count` records, each with a key of one byte and an empty value."""
    rest = varint(1) + b"k" + varint(0) + varint(0)
    records = bytearray()
    for delta in range(count):
        fields = b"\0\0" + varint(delta) + rest
        records += varint(len(fields)) + fields
    now_ms = time.time_ns() // 1_000_000
    compressed = gzip.compress(records, GZIP_LEVEL)
    checked = struct.pack(">hiqqqhii", GZIP, count - 1, now_ms, now_ms, -1, -1, -1, count) + compressed
    protected = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(protected)) + protected


@cache
def _produce_to_all(partitions: int) -> bytes:
    """Return a Produce request with one batch for each partition."""
    batch = keyed_batch(RECORDS_PER_BATCH)
    name = COMPACTED.encode()
    body = struct.pack(">hhiih", -1, ACKS_ALL, ANSWER_SECONDS_MAX * 1000, 1, len(name)) + name
    body += struct.pack(">i", partitions)
    body += b"".join(struct.pack(">ii", index, len(batch)) + batch for index in range(partitions))
    return request_frame(PRODUCE, PRODUCE_VERSION, body)


def _prepare_compacted(target: Target) -> None:
    with Admin(target.kafka_address) as admin:
        admin.make_topic(COMPACTED, target.size, {"cleanup.policy": "compact"})


def _tiny_records(target: Target) -> None:
    with target.kafka() as connection:
        connection.sendall(_produce_to_all(target.size))
        read_frame(connection)


def _prepare_deep(target: Target) -> None:
    with Admin(target.kafka_address) as admin:
        admin.make_topic(DEEP, 1, {"max.message.bytes": BATCH_BYTES_MAX})
    call = ProduceCall.build(DEEP, keyed_batch(target.size))
    with target.kafka() as connection:
        connection.sendall(call.frame)
        call.check(read_frame(connection))


def _last_of_batch(target: Target) -> None:
    with target.http() as connection:
        ask(connection, head("GET", f"{events_path(DEEP)}/{target.size - 1}", 0))


ATTACKS = (
    Attack(
        "tiny-records",
        "one Produce of {} batches of 100,000 records, compacted topic",
        300,
        10,
        _tiny_records,
        _prepare_compacted,
    ),
    Attack(
        "last-of-batch",
        "last event of a batch of {} records over HTTP",
        3_000_000,
        100_000,
        _last_of_batch,
        _prepare_deep,
    ),
)

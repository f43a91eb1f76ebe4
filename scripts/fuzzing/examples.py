"""Seeds for requests that no client sends: a message of every class and version, and a batch of every codec."""

from typing import Any

from kwire.wire import types
from kwire.wire.apis import APIS
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire.wire.records import RECORD_TYPES
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of
from storage.batch.format import GZIP, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch

MESSAGES: list[type[Any]] = list(
    dict.fromkeys(
        [
            *(cls for api in APIS.values() for cls in (api.request, api.response)),
            *(cls for family in RECORD_TYPES.values() for pair in family.values() for cls in pair),
            ConsumerProtocolSubscription,
            ConsumerProtocolAssignment,
        ]
    )
)
CASES: list[tuple[type[Any], int]] = [(cls, version) for cls in MESSAGES for version in message_of(cls).versions]

_SCALARS: dict[Kind, Any] = {
    types.BOOL: True,
    types.FLOAT64: 0.5,
    types.UUID: bytes(range(16)),
    types.STRING: "t",
    types.BYTES: b"\x00\x01ab",
}


def batches() -> list[bytes]:
    """Return a batch of every codec, with keys, null values, headers and a producer id."""
    records = [
        Record(b"key", b"value", 1_700_000_000_000, [("header", b"x"), ("empty", None)]),
        Record(None, b"v" * 40, 1_700_000_000_005),
        Record(b"k", None, 1_700_000_000_001),
    ]
    return [
        bytes(build_batch(records, compression=codec, producer_id=7, producer_epoch=0, base_sequence=0))
        for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD)
    ]


def example(cls: type[Any], version: int) -> Any:
    """Return a message with a value in every field of this version."""
    return _struct(message_of(cls).struct, version)


def encoded_examples() -> list[bytes]:
    """Return the encoded examples, in the order of CASES."""
    return [encode_message(example(cls, version), version) for cls, version in CASES]


def _struct(kind: Struct, version: int) -> Any:
    return kind.make(**{f.name: _field(f, version) for f in kind.fields if version in f.versions})


def _field(f: Field, version: int) -> Any:
    if isinstance(f.kind, ArrayKind):
        return [_value(f.kind.element, version), _value(f.kind.element, version)]
    return _value(f.kind, version)


def _value(kind: Kind, version: int) -> Any:
    if isinstance(kind, Struct):
        return _struct(kind, version)
    if kind is types.RECORDS:
        return batches()[0]
    return _SCALARS.get(kind, 1)

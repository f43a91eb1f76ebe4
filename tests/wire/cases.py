"""Every message and every stored record in every version, and a message of our own that has a field of every kind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from kwire.wire.apis import APIS
from kwire.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire.wire.records import RECORD_TYPES
from kwire.wire.schema import field, message, message_of, struct
from kwire.wire.types import (
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
)
from tests.end_to_end.seeds import announced_seed

REQUESTS_AND_RESPONSES: list[type[Any]] = [cls for api in APIS.values() for cls in (api.request, api.response)]
RECORDS: list[type[Any]] = list(
    dict.fromkeys(cls for types in RECORD_TYPES.values() for record_type in types.values() for cls in record_type)
)
MESSAGES = [*REQUESTS_AND_RESPONSES, *RECORDS, ConsumerProtocolSubscription, ConsumerProtocolAssignment]
CASES: list[tuple[type[Any], int]] = [(cls, version) for cls in MESSAGES for version in message_of(cls).versions]


def case_names(cases: list[tuple[type[Any], int]]) -> list[str]:
    return [f"{cls.__name__}-{version}" for cls, version in cases]


def by_message(cases: Sequence[tuple[type[Any], int]]) -> pytest.MarkDecorator:
    """Parametrises a test over messages: `cls`, and `versions` with all versions that `cases` has of it.

    One test for each message and version would spend more time on starting tests than on checking messages.
    """
    versions: dict[type[Any], list[int]] = {}
    for cls, version in cases:
        versions.setdefault(cls, []).append(version)
    return pytest.mark.parametrize(("cls", "versions"), versions.items(), ids=[cls.__name__ for cls in versions])


every_message = by_message(CASES)


@contextmanager
def checking(cls: type[Any], version: int) -> Iterator[None]:
    """Adds the message, the version and the seed to any error: a test checks many versions."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{cls.__name__} in version {version}; repeat with KWIRE_TEST_SEED={run_seed()}")
        raise


@cache
def run_seed() -> int:
    """The seed of everything random in this run, except the examples of hypothesis."""
    return announced_seed()


@struct()
class Inner:
    text: String = field("0+", default="")
    number: Int16 = field("0+", default=-1)
    hidden: Int8 = field("1+", tag=0, default=0)


@message(key=-1, versions="0-1", flexible="1+")
class Sample:
    """A field of every kind, plain, nullable, in arrays and tagged; version 1 is flexible."""

    flag: Bool = field("0+")
    int8: Int8 = field("0+")
    int16: Int16 = field("0+")
    uint16: UInt16 = field("0+")
    int32: Int32 = field("0+")
    uint32: UInt32 = field("0+")
    int64: Int64 = field("0+")
    float64: Float64 = field("0+")
    uuid: Uuid = field("0+")
    string: String = field("0+")
    nullable_string: String | None = field("0+")
    string_nullable_later: String | None = field("0+", nullable="1+")
    data: Bytes = field("0+")
    nullable_data: Bytes | None = field("0+")
    records: Records = field("0+")
    nullable_records: Records | None = field("0+")
    inner: Inner = field("0+")
    nullable_inner: Inner | None = field("0+")
    inners: Array[Inner] = field("0+")
    nullable_inners: Array[Inner] | None = field("0+")
    flags: Array[Bool] = field("0+")
    bytes_of: Array[Int8] = field("0+")
    numbers: Array[Int32] = field("0+")
    nullable_numbers: Array[Int64] | None = field("0+")
    uuids: Array[Uuid] = field("0+")
    strings: Array[String] = field("0+")
    datas: Array[Bytes] = field("0+")
    tagged_number: Int64 = field("1+", tag=0, default=-1)
    tagged_text: String = field("1+", tag=1, default="unset")
    tagged_null: String | None = field("1+", tag=2, default=None)
    tagged_inner: Inner = field("1+", tag=3, default=Inner)
    tagged_nullable_inner: Inner | None = field("1+", tag=5, default=None)
    tagged_inners: Array[Inner] = field("1+", tag=6, default=list)
    tagged_numbers: Array[Int32] | None = field("1+", tag=7, default=None)
    tagged_uuid: Uuid = field("1+", tag=8, default=bytes(16))
    tagged_records: Records | None = field("1+", tag=200, default=None)


def sample(**changes: Any) -> Sample:
    """A small Sample: everything empty or zero except what is given."""
    values: dict[str, Any] = {
        "flag": False,
        "uuid": bytes(16),
        "float64": 0.0,
        "inner": Inner(),
        **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), 0),
        **dict.fromkeys(("string", "string_nullable_later"), ""),
        **dict.fromkeys(("data", "records"), b""),
        **{name: [] for name in ("inners", "flags", "bytes_of", "numbers", "uuids", "strings", "datas")},
        **dict.fromkeys(("nullable_string", "nullable_data", "nullable_records", "nullable_inner")),
        **dict.fromkeys(("nullable_inners", "nullable_numbers")),
    }
    return Sample(**{**values, **changes})

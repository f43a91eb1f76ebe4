"""The primitive types of the protocol, as annotations for the type checker and the codec.

For mypy `Int32` is `int`; for the codec the annotation also has the encoding. Arrays are lists. UUIDs are 16 raw bytes,
because a `uuid.UUID` takes ten times as long to create. Records are a view of the received bytes.
"""

from dataclasses import dataclass
from typing import Annotated, TypeVar

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of constant size, encoded with one `struct` format character or a sized format such as `16s`."""

    format: str
    size_bytes: int
    zero: object


@dataclass(frozen=True, slots=True)
class Varlen:
    """A value with a length prefix: a string, bytes or records."""

    name: str
    zero: object


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Marks an annotation as a list of another type."""


BOOL = Fixed("?", 1, False)
INT8 = Fixed("b", 1, 0)
INT16 = Fixed("h", 2, 0)
UINT16 = Fixed("H", 2, 0)
INT32 = Fixed("i", 4, 0)
UINT32 = Fixed("I", 4, 0)
INT64 = Fixed("q", 8, 0)
FLOAT64 = Fixed("d", 8, 0.0)
UUID = Fixed("16s", 16, bytes(16))

STRING = Varlen("string", "")
BYTES = Varlen("bytes", b"")
RECORDS = Varlen("records", b"")

T = TypeVar("T")

Bool = Annotated[bool, BOOL]
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
UInt32 = Annotated[int, UINT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[bytes, UUID]
String = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[Buffer, RECORDS]
Array = Annotated[list[T], ArrayOf()]

ZERO_UUID = bytes(16)

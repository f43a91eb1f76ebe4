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


@dataclass(frozen=True, slots=True)
class Entity:
    """What a string is: a name of a resource, or a text that may contain names. Kafka's schemas call it entityType.

    Only some types of resources have names that belong to scopes. If the type is another field of the same struct,
    that field is `by`, and `types` are its values for such resources.
    """

    name: str
    by: str | None = None
    types: tuple[int, ...] = ()

    @property
    def is_name(self) -> bool:
        return self is not ERROR_TEXT


TOPIC_NAME = Entity("topicName")
GROUP_ID = Entity("groupId")
TRANSACTIONAL_ID = Entity("transactionalId")
# A group id or a transactional id.
COORDINATOR_KEY = Entity("coordinatorKey")
# The types are Kafka's codes of topics and groups, and in ACLs of topics, groups and transactional ids.
CONFIG_RESOURCE = Entity("configResource", "resource_type", (2, 32))
ACL_RESOURCE = Entity("aclResource", "resource_type", (2, 3, 5))
ACL_RESOURCE_FILTER = Entity("aclResourceFilter", "resource_type_filter", (2, 3, 5))
ERROR_TEXT = Entity("errorText")

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
TopicName = Annotated[str, STRING, TOPIC_NAME]
GroupId = Annotated[str, STRING, GROUP_ID]
TransactionalId = Annotated[str, STRING, TRANSACTIONAL_ID]
CoordinatorKey = Annotated[str, STRING, COORDINATOR_KEY]
ConfigResourceName = Annotated[str, STRING, CONFIG_RESOURCE]
AclResourceName = Annotated[str, STRING, ACL_RESOURCE]
AclResourceNameFilter = Annotated[str, STRING, ACL_RESOURCE_FILTER]
ErrorText = Annotated[str, STRING, ERROR_TEXT]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[Buffer, RECORDS]
Array = Annotated[list[T], ArrayOf()]

ZERO_UUID = bytes(16)

"""The part that the generators of decoders and of encoders share."""

from typing import Any

from kwire.wire.chunked_copy import copied
from kwire.wire.codec import limits
from kwire.wire.errors import TooManyElements, WireError
from kwire.wire.schema import Kind, Message
from kwire.wire.types import STRING, Fixed
from kwire.wire.varint import ONE_BYTE, decode_uvarint, encode_uvarint

COUNT = Fixed("i", 4, 0)
STRING_LENGTH = Fixed("h", 2, 0)


def length_of(kind: Kind) -> Fixed:
    return STRING_LENGTH if kind is STRING else COUNT


def refuse(what: str, claimed: int, position: int, room: int = limits.ELEMENTS_MAX) -> WireError:
    if claimed > room:
        return TooManyElements(
            f"{what} has the count {claimed} at byte {position}: this message may have at most {room} more elements"
        )
    return WireError(f"{what} has the count or length {claimed} at byte {position}: it is negative or too large")


class CodeWriter:
    """Collects the lines of a generated function, and the objects that the function refers to by name."""

    def __init__(self, message: Message, version: int, *, is_chunked: bool = False, is_scoped: bool = False) -> None:
        self.is_chunked = is_chunked
        self.is_scoped = is_scoped
        if version not in message.versions:
            raise WireError(f"{message.name} has no version {version}")
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "refuse": refuse,
            "uvarint": decode_uvarint,
            "copied": copied,
            "U": encode_uvarint,
            "V": ONE_BYTE,
        }
        self.lines: list[str] = []
        self.depth = 1
        self.serial = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def refer(self, stem: str, thing: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = thing
        return name

    def source(self, head: str) -> str:
        return head + "\n" + "\n".join(self.lines) + "\n"

    def build(self, head: str, name: str) -> Any:
        place = f"<{self.message.name} v{self.version} {name}>"
        exec(compile(self.source(head), place, "exec"), self.names)
        return self.names[name]

"""Generates encoders and decoders, as straight-line Python code, for each message and version on first use.

The generated code has no calls per field. Adjacent fields of fixed size become one `struct` call, which includes the
length of a following string. Nested structs are inlined, arrays become loops. Every count and length is checked against
the remaining bytes before memory is allocated. `spec.py` is the slow reference; a property test compares the two.

    decode(view, room) -> message   raises WireError; TooManyElements if its arrays have more than `room` elements
    encode(message) -> list[Buffer] the parts in order; large records stay views and are never copied

For messages that take too long to decode or encode without a pause, the same code is also generated in the form of
generators. These yield after each chunk and return the result.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from kwire.wire.chunked_copy import COPIED_BYTES_PER_CHUNK, copied
from kwire.wire.errors import TooManyElements, WireError
from kwire.wire.schema import ArrayKind, Field, Kind, Message, Struct, message_of
from kwire.wire.smallest_size import smallest_size
from kwire.wire.types import BYTES, RECORDS, STRING, UUID, Buffer, Fixed, Varlen
from kwire.wire.varint import ONE_BYTE, decode_uvarint, encode_uvarint

M = TypeVar("M")

# Smaller records are copied into the preceding part, which is faster than writing another part to the socket.
SMALL_RECORDS_BYTES = 512

# Maximum number of elements of all arrays of one message. It allows a hundred thousand partitions, each in its own
# topic, and some more. An element can take three bytes in the frame and a hundred in memory. Without this limit a
# decoded message could be forty times as large as its frame and take seconds to decode. Tagged fields are included in
# the limit: unknown tagged fields are not stored, but skipping twenty million of them would take seconds.
ELEMENTS_MAX = 250_000

# Elements that a chunked decoder or encoder processes between two yields, in less than half a millisecond.
ELEMENTS_PER_CHUNK = 150
# 2 ** _BYTES_PER_ELEMENT_LOG2 bytes of strings or opaque data take as long as one element.
_BYTES_PER_ELEMENT_LOG2 = 10
# 2 ** _FIXED_PER_ELEMENT_LOG2 numbers or UUIDs of an array take as long as one element.
_FIXED_PER_ELEMENT_LOG2 = 4
FIXED_PER_CHUNK = ELEMENTS_PER_CHUNK << _FIXED_PER_ELEMENT_LOG2

# Kafka's limit in all versions: the largest value of the two-byte length of versions that are not flexible.
STRING_BYTES_MAX = 0x7FFF


# The encodings of a null struct (KIP-893): an int8 of -1, and in tagged fields a varint of 0.
NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"


class EncodedElements:
    """Encoded elements of a top-level array of a message, for responses too large to encode without a pause."""

    __slots__ = ("_count", "encoded")

    def __init__(self, count: int, encoded: bytes) -> None:
        self._count = count
        self.encoded = encoded

    def __len__(self) -> int:
        return self._count


Decode = Callable[..., Any]
ChunkedDecode = Callable[[Buffer], Generator[None, None, Any]]
Encode = Callable[[Any], list[Buffer]]
ChunkedEncode = Callable[[Any], Generator[None, None, list[Buffer]]]

_decoders: dict[tuple[type[Any], int], Decode] = {}
_chunked_decoders: dict[tuple[type[Any], int], ChunkedDecode] = {}
_encoders: dict[tuple[type[Any], int], Encode] = {}
_chunked_encoders: dict[tuple[type[Any], int], ChunkedEncode] = {}
_element_encoders: dict[tuple[type[Any], str, int], Callable[[Sequence[Any]], bytes]] = {}


def decoder(cls: type[M], version: int) -> Callable[..., M]:
    """Return the decoder of a message class in one version, generated once. Its second argument is `room`."""
    try:
        return _decoders[cls, version]
    except KeyError:
        made = _decoders[cls, version] = _Decoder(message_of(cls), version).compile()
        return made


def chunked_decoder(cls: type[Any], version: int) -> ChunkedDecode:
    """Return the decoder in the form of a generator, for messages of up to ELEMENTS_MAX elements."""
    try:
        return _chunked_decoders[cls, version]
    except KeyError:
        made = _chunked_decoders[cls, version] = _Decoder(message_of(cls), version, is_chunked=True).compile_chunked()
        return made


def encoder(cls: type[M], version: int) -> Callable[[M], list[Buffer]]:
    """Return the encoder of a message class in one version, generated once."""
    try:
        return _encoders[cls, version]
    except KeyError:
        made = _encoders[cls, version] = _Encoder(message_of(cls), version).compile()
        return made


def chunked_encoder(cls: type[Any], version: int) -> ChunkedEncode:
    """Return the encoder in the form of a generator."""
    try:
        return _chunked_encoders[cls, version]
    except KeyError:
        made = _chunked_encoders[cls, version] = _Encoder(message_of(cls), version, is_chunked=True).compile_chunked()
        return made


def elements_encoder(cls: type[Any], array: str, version: int) -> Callable[[Sequence[Any]], bytes]:
    """Return the encoder of some elements of a top-level array. `EncodedElements` holds the result and the count."""
    try:
        return _element_encoders[cls, array, version]
    except KeyError:
        made = _element_encoders[cls, array, version] = _Encoder(message_of(cls), version).compile_elements(array)
        return made


def decode_message(cls: type[M], version: int, data: Buffer) -> M:
    return decoder(cls, version)(data)


def encode_message(message: object, version: int) -> bytes:
    return b"".join(encoder(type(message), version)(message))


def _refuse(what: str, claimed: int, position: int, room: int = ELEMENTS_MAX) -> WireError:
    if claimed > room:
        return TooManyElements(
            f"{what} has the count {claimed} at byte {position}: this message may have at most {room} more elements"
        )
    return WireError(f"{what} has the count or length {claimed} at byte {position}: it is negative or too large")


class _Writer:
    """Collects the lines of a generated function, and the objects that the function refers to by name."""

    def __init__(self, message: Message, version: int, *, is_chunked: bool = False) -> None:
        self.is_chunked = is_chunked
        if version not in message.versions:
            raise WireError(f"{message.name} has no version {version}")
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "refuse": _refuse,
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


class _Decoder(_Writer):
    def compile(self) -> Decode:
        decode_straight = self.body()
        name = f"{self.message.name} v{self.version}"

        def decode(data: Buffer, room: int = ELEMENTS_MAX) -> Any:
            try:
                return decode_straight(data if type(data) is memoryview else memoryview(data), room)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise WireError(f"{name} is truncated or malformed: {error}") from error

        return decode

    def compile_chunked(self) -> ChunkedDecode:
        self.emit(f"left = {ELEMENTS_PER_CHUNK}")
        self.emit("if not left: yield")  # makes it a generator even if the message has no array
        decode_straight = self.body()
        name = f"{self.message.name} v{self.version}"

        def decode(data: Buffer) -> Generator[None, None, Any]:
            try:
                return (yield from decode_straight(memoryview(data), ELEMENTS_MAX))
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise WireError(f"{name} is truncated or malformed: {error}") from error

        return decode

    def body(self) -> Any:
        self.emit("pos = 0")
        self.emit("end = len(buf)")
        self.struct("o", self.message.struct)
        self.emit("return o")
        return self.build("def decode(buf, room):", "decode")

    def end_element(self) -> None:
        """In chunked code, emit a yield after the last element of a chunk."""
        if self.is_chunked:
            self.emit("left -= 1")
            self.emit(f"if left <= 0: left = {ELEMENTS_PER_CHUNK}; yield")

    def struct(self, target: str, kind: Struct) -> None:
        """Emit code that creates an object and decodes its fields. Adjacent fixed fields are read together."""
        made = self.refer("C", kind.make)
        self.emit(f"{target} = new({made})")
        group: list[tuple[str, Fixed]] = []
        for f in kind.at(self.version):
            into = f"{target}.{f.name}"
            if isinstance(f.kind, Fixed):
                group.append((into, f.kind))
            else:
                self.value(into, f, group)
        self.fixed(group)
        self.absent(target, kind)
        if self.flexible:
            self.tagged(target, kind)

    def absent(self, target: str, kind: Struct) -> None:
        for f in kind.fields:
            if self.version not in f.versions or f.tag is not None:
                self.emit(f"{target}.{f.name} = {'[]' if f.default is list else self.refer('D', f.default)}")

    def fixed(self, group: list[tuple[str, Fixed]]) -> None:
        """Emit the pending fixed fields as one unpack."""
        if not group:
            return
        packing = struct.Struct(">" + "".join(kind.format for _, kind in group))
        unpack = self.refer("S", packing.unpack_from)
        self.emit(f"{', '.join(into for into, _ in group)}, = {unpack}(buf, pos)")
        self.emit(f"pos += {packing.size}")
        group.clear()

    def length(self, size: Fixed, group: list[tuple[str, Fixed]]) -> str:
        """Emit code that reads a length or count, and return the name of its variable. The value for null is -1."""
        n = self.fresh("n")
        if self.flexible:
            self.fixed(group)
            self.uvarint(n)
            self.emit(f"{n} -= 1")
        else:
            group.append((n, size))
            self.fixed(group)
        return n

    def uvarint(self, name: str) -> None:
        self.emit(f"{name} = buf[pos]")
        self.emit(f"if {name} < 128: pos += 1")
        self.emit(f"else: {name}, pos = uvarint(buf, pos)")

    def value(self, into: str, f: Field, group: list[tuple[str, Fixed]]) -> None:
        nullable = self.version in f.nullable
        if isinstance(f.kind, Struct):
            self.fixed(group)
            self.nested(into, f.kind, nullable, is_tagged=f.tag is not None)
        elif isinstance(f.kind, ArrayKind):
            self.array(into, f, f.kind, nullable, group)
        else:
            assert isinstance(f.kind, Varlen)
            self.varlen(into, f.name, f.kind, nullable, group)

    def nested(self, into: str, kind: Struct, nullable: bool, is_tagged: bool) -> None:
        if nullable:
            # In tagged fields a varint says whether the struct is null (0). Elsewhere it is an int8, negative for null.
            presence, is_null = self.fresh("presence"), "== 0" if is_tagged else "> 127"
            if is_tagged:
                self.uvarint(presence)
            else:
                self.emit(f"{presence} = buf[pos]; pos += 1")
            self.emit(f"if {presence} {is_null}: {into} = None")
            self.emit("else:")
            self.depth += 1
        inner = self.fresh("o")
        self.struct(inner, kind)
        self.emit(f"{into} = {inner}")
        self.depth -= nullable

    def varlen(self, into: str, what: str, kind: Varlen, nullable: bool, group: list[tuple[str, Fixed]]) -> None:
        n = self.length(_length_of(kind), group)
        # A two-byte length cannot exceed the limit, a compact length can.
        bound = f" and {n} <= {STRING_BYTES_MAX}" if kind is STRING and self.flexible else ""
        self.emit(f"if 0 <= {n} <= end - pos{bound}:")
        copied = "bytes(buf[pos:pos + {n}])"
        if self.is_chunked:
            copied += f" if {n} <= {COPIED_BYTES_PER_CHUNK} else (yield from copied(buf[pos:pos + {n}]))"
        taken = {STRING.name: "str(buf[pos:pos + {n}], 'utf-8')", BYTES.name: copied}
        self.emit(f"    {into} = {taken.get(kind.name, 'buf[pos:pos + {n}]').format(n=n)}")
        self.emit(f"    pos += {n}")
        if self.is_chunked and kind is not RECORDS:
            self.emit(f"    left -= {n} >> {_BYTES_PER_ELEMENT_LOG2}")
        if nullable:
            self.emit(f"elif {n} == -1: {into} = None")
        self.emit(f"else: raise refuse({what!r}, {n}, pos)")

    def array(self, into: str, f: Field, kind: ArrayKind, nullable: bool, group: list[tuple[str, Fixed]]) -> None:
        n = self.length(_COUNT, group)
        smallest = smallest_size(kind.element, self.version, self.flexible)
        self.emit(f"if 0 <= {n} <= (end - pos) // {smallest} and {n} <= room:")
        self.depth += 1
        self.emit(f"room -= {n}")
        self.elements(into, f.name, kind.element, n)
        self.depth -= 1
        if nullable:
            self.emit(f"elif {n} == -1: {into} = None")
        self.emit(f"else: raise refuse({f.name!r}, {n}, pos, room)")

    def elements(self, into: str, what: str, element: Fixed | Varlen | Struct, n: str) -> None:
        if isinstance(element, Fixed):
            self.fixed_elements(into, element, n)
            return
        items, item = self.fresh("items"), self.fresh("o")
        self.emit(f"{items} = []")
        self.emit(f"for _ in range({n}):")
        self.depth += 1
        if isinstance(element, Struct):
            self.struct(item, element)
        else:
            self.varlen(item, what, element, False, [])
        self.emit(f"{items}.append({item})")
        self.end_element()
        self.depth -= 1
        self.emit(f"{into} = {items}")

    def fixed_elements(self, into: str, element: Fixed, n: str) -> None:
        if not self.is_chunked:
            self.emit(f"{into} = {self.unpacked(element, n)}")
            self.emit(f"pos += {element.size_bytes} * {n}")
            return
        items, k = self.fresh("items"), self.fresh("k")
        self.emit(f"{items} = []")
        self.emit(f"while {n}:")
        self.depth += 1
        self.emit(f"{k} = {n} if {n} < {FIXED_PER_CHUNK} else {FIXED_PER_CHUNK}")
        self.emit(f"{items} += {self.unpacked(element, k)}")
        self.emit(f"pos += {element.size_bytes} * {k}")
        self.emit(f"{n} -= {k}")
        self.emit(f"left -= {k} >> {_FIXED_PER_ELEMENT_LOG2}")
        self.emit(f"if left <= 0: left = {ELEMENTS_PER_CHUNK}; yield")
        self.depth -= 1
        self.emit(f"{into} = {items}")

    def unpacked(self, element: Fixed, n: str) -> str:
        """Return the expression for a list of the next `n` elements."""
        if element is UUID:
            # One unpack per UUID: a format of n times 16s would be as large as the array, and `struct` caches formats.
            each = self.refer("S", struct.Struct(element.format).iter_unpack)
            return f"[u for u, in {each}(buf[pos:pos + 16 * {n}])]"
        unpack = self.refer("S", struct.unpack_from)
        return f"list({unpack}(f'>{{{n}}}{element.format}', buf, pos))"

    def tagged(self, target: str, kind: Struct) -> None:
        """Emit code that decodes known tagged fields and skips unknown ones (KIP-482)."""
        n = self.fresh("n")
        self.uvarint(n)
        self.emit(f"if {n}:")
        self.depth += 1
        self.emit(f"if {n} > (end - pos) // 2 or {n} > room: raise refuse('tagged fields', {n}, pos, room)")
        self.emit(f"room -= {n}")
        tag, size, stop, last = (self.fresh(s) for s in ("tag", "size", "stop", "last"))
        self.emit(f"{last} = -1")
        self.emit(f"for _ in range({n}):")
        self.depth += 1
        self.uvarint(tag)
        self.uvarint(size)
        self.emit(f"{stop} = pos + {size}")
        self.emit(f"if {stop} > end or {tag} <= {last}: raise refuse('tagged field', {size}, pos)")
        self.emit(f"{last} = {tag}")
        opening = "if"
        for f in kind.tagged_at(self.version):
            self.emit(f"{opening} {tag} == {f.tag}:")
            opening = "elif"
            self.depth += 1
            group: list[tuple[str, Fixed]] = []
            if isinstance(f.kind, Fixed):
                group.append((f"{target}.{f.name}", f.kind))
            else:
                self.value(f"{target}.{f.name}", f, group)
            self.fixed(group)
            self.emit(f"if pos != {stop}: raise refuse({f.name!r}, {size}, pos)")
            self.depth -= 1
        self.emit(f"pos = {stop}")
        self.end_element()
        self.depth -= 2


class _Encoder(_Writer):
    def compile(self) -> Encode:
        made: Encode = self.body()
        return made

    def compile_chunked(self) -> ChunkedEncode:
        self.emit(f"left = {ELEMENTS_PER_CHUNK}")
        self.emit("if not left: yield")  # makes it a generator even if the message has no array
        made: ChunkedEncode = self.body()
        return made

    def body(self) -> Any:
        self.names["join"] = b"".join
        self.emit("parts = []")
        self.emit("w = parts.append")
        self.emit("chunks = []")
        self.struct("o", self.message.struct, "w")
        self.emit("if parts: chunks.append(join(parts))")
        self.emit("return chunks")
        return self.build("def encode(o):", "encode")

    def compile_elements(self, array: str) -> Callable[[Sequence[Any]], bytes]:
        (kind,) = [f.kind for f in self.message.struct.at(self.version) if f.name == array]
        assert isinstance(kind, ArrayKind)
        self.names["join"] = b"".join
        self.emit("parts = []")
        self.emit("w = parts.append")
        self.emit("chunks = []")
        self.elements("o", kind.element, "w")
        self.emit("chunks.append(join(parts))")
        self.emit("return join(chunks)")
        made: Callable[[Sequence[Any]], bytes] = self.build("def encode(o):", "encode")
        return made

    def struct(self, source: str, kind: Struct, w: str) -> None:
        group: list[tuple[str, Fixed]] = []
        for f in kind.at(self.version):
            self.value(f"{source}.{f.name}", f, w, group)
        self.fixed(group, w)
        if self.flexible:
            self.tagged(source, kind, w)

    def fixed(self, group: list[tuple[str, Fixed]], w: str) -> None:
        if not group:
            return
        pack = self.refer("P", struct.Struct(">" + "".join(kind.format for _, kind in group)).pack)
        self.emit(f"{w}({pack}({', '.join(value for value, _ in group)}))")
        group.clear()

    def length(self, value: str, size: Fixed, w: str, group: list[tuple[str, Fixed]]) -> None:
        """Emit code that writes a length or count."""
        if self.flexible:
            self.fixed(group, w)
            n = self.fresh("n")
            self.emit(f"{n} = {value} + 1")
            self.emit(f"{w}(V[{n}] if {n} < 128 else U({n}))")
        else:
            group.append((value, size))

    def null_length(self, size: Fixed, w: str) -> None:
        """Emit code that writes the length of null: -1, or 0 as a compact length."""
        self.emit(f"{w}({bytes(1) if self.flexible else struct.pack('>' + size.format, -1)!r})")

    def value(self, source: str, f: Field, w: str, group: list[tuple[str, Fixed]]) -> None:
        if isinstance(f.kind, Fixed):
            group.append((source, f.kind))
            return
        nullable = self.version in f.nullable
        x = self.fresh("x")
        self.emit(f"{x} = {source}")
        if nullable:
            # The pending fixed fields must be written before the branch.
            self.fixed(group, w)
            self.emit(f"if {x} is None:")
            self.depth += 1
            if isinstance(f.kind, Struct):
                self.emit(f"{w}({NULL_TAGGED_STRUCT if f.tag is not None else NULL_STRUCT!r})")
            else:
                self.null_length(_length_of(f.kind), w)
            self.depth -= 1
            self.emit("else:")
            self.depth += 1
        self.present(x, f.kind, nullable, w, group)
        if nullable:
            self.fixed(group, w)
            self.depth -= 1

    def present(self, x: str, kind: Kind, nullable: bool, w: str, group: list[tuple[str, Fixed]]) -> None:
        if isinstance(kind, Struct):
            self.fixed(group, w)
            if nullable:
                self.emit(f"{w}(b'\\x01')")
            self.struct(x, kind, w)
        elif isinstance(kind, ArrayKind):
            self.length(f"len({x})", _COUNT, w, group)
            self.fixed(group, w)
            self.elements(x, kind.element, w)
        else:
            assert isinstance(kind, Varlen)
            if kind is STRING:
                self.emit(f"{x} = {x}.encode()")
            self.length(f"len({x})", _length_of(kind), w, group)
            self.fixed(group, w)
            self.bytes_of(x, kind, w)

    def bytes_of(self, x: str, kind: Varlen, w: str) -> None:
        if kind is not RECORDS or w != "w":
            # The size of a tagged field is written before its value, so its records are collected, not returned.
            self.emit(f"{w}({x})")
            return
        self.emit(f"if len({x}) < {SMALL_RECORDS_BYTES}: {w}({x})")
        self.emit("else:")
        self.emit("    chunks.append(join(parts))")
        self.emit("    parts.clear()")
        self.emit(f"    chunks.append({x})")

    def elements(self, x: str, element: Fixed | Varlen | Struct, w: str) -> None:
        if isinstance(element, Fixed):
            self.fixed_elements(x, element, w)
            return
        if self.depth == 1:
            self.names["Encoded"] = EncodedElements
            self.emit(f"if type({x}) is Encoded: {w}({x}.encoded); {x} = ()")
        item = self.fresh("o")
        self.emit(f"for {item} in {x}:")
        self.depth += 1
        if isinstance(element, Struct):
            self.struct(item, element, w)
        else:
            group: list[tuple[str, Fixed]] = []
            self.present(item, element, False, w, group)
        # The size of a tagged field is written before its value, so a tagged value cannot be split into chunks.
        if self.is_chunked and w == "w":
            self.emit("left -= 1")
            self.emit(f"if left <= 0: left = {ELEMENTS_PER_CHUNK}; chunks.append(join(parts)); parts.clear(); yield")
        self.emit("pass")
        self.depth -= 1

    def fixed_elements(self, x: str, element: Fixed, w: str) -> None:
        some = x
        # The size of a tagged field is written before its value, so a tagged value cannot be split into chunks.
        is_chunked = self.is_chunked and w == "w"
        if is_chunked:
            some, start = self.fresh("x"), self.fresh("n")
            self.emit(f"for {start} in range(0, len({x}), {FIXED_PER_CHUNK}):")
            self.depth += 1
            self.emit(f"{some} = {x}[{start}:{start} + {FIXED_PER_CHUNK}]")
        if element is UUID:
            self.emit(f"for u in {some}: {w}({self.refer('P', struct.Struct(element.format).pack)}(u))")
        else:
            pack = self.refer("P", struct.pack)
            self.emit(f"{w}({pack}(f'>{{len({some})}}{element.format}', *{some}))")
        if is_chunked:
            self.emit(f"left -= len({some}) >> {_FIXED_PER_ELEMENT_LOG2}")
            self.emit(f"if left <= 0: left = {ELEMENTS_PER_CHUNK}; chunks.append(join(parts)); parts.clear(); yield")
            self.depth -= 1

    def tagged(self, source: str, kind: Struct, w: str) -> None:
        """Emit code that encodes the tagged fields that differ from their defaults."""
        fields = kind.tagged_at(self.version)
        if not fields:
            self.emit(f"{w}(b'\\x00')")
            return
        defaults = [self.refer("D", [] if f.default is list else f.default) for f in fields]
        # Most values are the default objects themselves, so the identity is checked before the slower comparison.
        values = [(f"{source}.{f.name}", default) for f, default in zip(fields, defaults, strict=True)]
        self.emit(f"if {' and '.join(f'({x} is {default} or {x} == {default})' for x, default in values)}:")
        self.emit(f"    {w}(b'\\x00')")
        self.emit("else:")
        self.depth += 1
        self.tagged_values(source, fields, defaults, w)
        self.depth -= 1

    def tagged_values(self, source: str, fields: list[Field], defaults: list[str], w: str) -> None:
        count, body, v = self.fresh("count"), self.fresh("body"), self.fresh("w")
        self.emit(f"{count} = 0; {body} = []; {v} = {body}.append")
        for f, default in zip(fields, defaults, strict=True):
            self.emit(f"if {source}.{f.name} is not {default} and {source}.{f.name} != {default}:")
            self.depth += 1
            inner, iw = self.fresh("inner"), self.fresh("w")
            self.emit(f"{count} += 1; {inner} = []; {iw} = {inner}.append")
            group: list[tuple[str, Fixed]] = []
            self.value(f"{source}.{f.name}", f, iw, group)
            self.fixed(group, iw)
            self.emit(f"{inner} = join({inner})")
            self.emit(f"{v}(U({f.tag})); {v}(U(len({inner}))); {v}({inner})")
            self.depth -= 1
        self.emit(f"{w}(U({count})); {w}(join({body}))")


_COUNT = Fixed("i", 4, 0)
_STRING_LENGTH = Fixed("h", 2, 0)


def _length_of(kind: Kind) -> Fixed:
    return _STRING_LENGTH if kind is STRING else _COUNT

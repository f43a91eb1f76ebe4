"""Generates the code of decoders."""

import struct
from collections.abc import Callable, Generator
from typing import Any

from kwire.wire.chunked_copy import COPIED_BYTES_PER_CHUNK
from kwire.wire.codec import limits
from kwire.wire.codec.code_writer import COUNT, CodeWriter, length_of
from kwire.wire.codec.smallest_size import smallest_size
from kwire.wire.errors import WireError
from kwire.wire.schema import ArrayKind, Field, Struct
from kwire.wire.types import BYTES, RECORDS, STRING, UUID, Buffer, Entity, Fixed, Varlen

Decode = Callable[..., Any]
ChunkedDecode = Callable[..., Generator[None, None, Any]]


class DecoderCode(CodeWriter):
    def compile(self) -> Decode:
        decode_straight = self.body()
        name = f"{self.message.name} v{self.version}"

        def decode(data: Buffer, room: int = limits.ELEMENTS_MAX) -> Any:
            try:
                return decode_straight(data if type(data) is memoryview else memoryview(data), room)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise WireError(f"{name} is truncated or malformed: {error}") from error

        def decode_scoped(data: Buffer, room: int, prefix: str) -> Any:
            try:
                return decode_straight(memoryview(data), room, prefix)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise WireError(f"{name} is truncated or malformed: {error}") from error

        return decode_scoped if self.is_scoped else decode

    def compile_chunked(self) -> ChunkedDecode:
        self.emit(f"left = {limits.ELEMENTS_PER_CHUNK}")
        self.emit("if not left: yield")  # makes it a generator even if the message has no array
        decode_straight = self.body()
        name = f"{self.message.name} v{self.version}"

        def decode(data: Buffer, *prefix: str) -> Generator[None, None, Any]:
            try:
                return (yield from decode_straight(memoryview(data), limits.ELEMENTS_MAX, *prefix))
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise WireError(f"{name} is truncated or malformed: {error}") from error

        return decode

    def body(self) -> Any:
        self.emit("pos = 0")
        self.emit("end = len(buf)")
        if self.is_scoped:
            # A name with its prefix must fit into the records of internal topics, which have the same limit.
            self.emit(f"longest = {limits.STRING_BYTES_MAX} - len(prefix)")
        self.struct("o", self.message.struct)
        self.emit("return o")
        return self.build(f"def decode(buf, room{', prefix' if self.is_scoped else ''}):", "decode")

    def end_element(self) -> None:
        """In chunked code, emit a yield after the last element of a chunk."""
        if self.is_chunked:
            self.emit("left -= 1")
            self.emit(f"if left <= 0: left = {limits.ELEMENTS_PER_CHUNK}; yield")

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
            self.varlen(into, f.name, f.kind, nullable, group, f.entity)

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

    def varlen(
        self,
        into: str,
        what: str,
        kind: Varlen,
        nullable: bool,
        group: list[tuple[str, Fixed]],
        entity: Entity | None = None,
    ) -> None:
        n = self.length(length_of(kind), group)
        prefix = self.prefix_of(into, entity)
        # A two-byte length cannot exceed the limit, a compact length can.
        bound = f" and {n} <= {limits.STRING_BYTES_MAX}" if kind is STRING and self.flexible else ""
        if prefix:
            bound = f" and {n} <= longest"
        self.emit(f"if 0 <= {n} <= end - pos{bound}:")
        copied = "bytes(buf[pos:pos + {n}])"
        if self.is_chunked:
            copied += f" if {n} <= {COPIED_BYTES_PER_CHUNK} else (yield from copied(buf[pos:pos + {n}]))"
        taken = {STRING.name: prefix + "str(buf[pos:pos + {n}], 'utf-8')", BYTES.name: copied}
        self.emit(f"    {into} = {taken.get(kind.name, 'buf[pos:pos + {n}]').format(n=n)}")
        self.emit(f"    pos += {n}")
        if self.is_chunked and kind is not RECORDS:
            self.emit(f"    left -= {n} >> {limits.BYTES_PER_ELEMENT_LOG2}")
        if nullable:
            self.emit(f"elif {n} == -1: {into} = None")
        self.emit(f"else: raise refuse({what!r}, {n}, pos)")

    def prefix_of(self, into: str, entity: Entity | None) -> str:
        """Return the part of an expression that puts the prefix before a name; an empty string for other strings."""
        if not self.is_scoped or entity is None or not entity.is_name:
            return ""
        if entity.by is None:
            return "prefix + "
        owner = into.rpartition(".")[0]
        return f"(prefix if {owner}.{entity.by} in {entity.types} else '') + "

    def array(self, into: str, f: Field, kind: ArrayKind, nullable: bool, group: list[tuple[str, Fixed]]) -> None:
        n = self.length(COUNT, group)
        smallest = smallest_size(kind.element, self.version, self.flexible)
        self.emit(f"if 0 <= {n} <= (end - pos) // {smallest} and {n} <= room:")
        self.depth += 1
        self.emit(f"room -= {n}")
        self.elements(into, f, kind.element, n)
        self.depth -= 1
        if nullable:
            self.emit(f"elif {n} == -1: {into} = None")
        self.emit(f"else: raise refuse({f.name!r}, {n}, pos, room)")

    def elements(self, into: str, f: Field, element: Fixed | Varlen | Struct, n: str) -> None:
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
            self.varlen(item, f.name, element, False, [], f.entity)
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
        self.emit(f"{k} = {n} if {n} < {limits.FIXED_PER_CHUNK} else {limits.FIXED_PER_CHUNK}")
        self.emit(f"{items} += {self.unpacked(element, k)}")
        self.emit(f"pos += {element.size_bytes} * {k}")
        self.emit(f"{n} -= {k}")
        self.emit(f"left -= {k} >> {limits.FIXED_PER_ELEMENT_LOG2}")
        self.emit(f"if left <= 0: left = {limits.ELEMENTS_PER_CHUNK}; yield")
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

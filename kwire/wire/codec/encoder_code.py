"""Generates the code of encoders."""

import struct
from collections.abc import Callable, Generator
from typing import Any

from kwire.wire.codec import limits
from kwire.wire.codec.code_writer import COUNT, CodeWriter, length_of
from kwire.wire.codec.encoded_elements import EncodedElements
from kwire.wire.names import OutsideScope
from kwire.wire.schema import ArrayKind, Field, Kind, Struct
from kwire.wire.types import ERROR_TEXT, RECORDS, STRING, UUID, Buffer, Entity, Fixed, Varlen

# Smaller records are copied into the preceding part, which is faster than writing another part to the socket.
SMALL_RECORDS_BYTES = 512
# The encodings of a null struct (KIP-893): an int8 of -1, and in tagged fields a varint of 0.
NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"

_NOT_TRANSLATED = "elements were encoded without the translation of the scope"

Encode = Callable[..., list[Buffer]]
ChunkedEncode = Callable[..., Generator[None, None, list[Buffer]]]
EncodeElements = Callable[..., bytes]


class EncoderCode(CodeWriter):
    def compile(self) -> Encode:
        made: Encode = self.body()
        return made

    def compile_chunked(self) -> ChunkedEncode:
        self.emit(f"left = {limits.ELEMENTS_PER_CHUNK}")
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
        return self.build(self.head(), "encode")

    def head(self) -> str:
        if not self.is_scoped:
            return "def encode(o):"
        self.names["OutsideScope"] = OutsideScope
        return "def encode(o, names):\n    plain = names.plain; text = names.text"

    def compile_elements(self, array: str) -> EncodeElements:
        ((kind, entity),) = [(f.kind, f.entity) for f in self.message.struct.at(self.version) if f.name == array]
        assert isinstance(kind, ArrayKind)
        self.names["join"] = b"".join
        self.emit("parts = []")
        self.emit("w = parts.append")
        self.emit("chunks = []")
        self.elements("o", kind.element, "w", self.translation_of("", entity))
        self.emit("chunks.append(join(parts))")
        self.emit("return join(chunks)")
        made: EncodeElements = self.build(self.head(), "encode")
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
                self.null_length(length_of(f.kind), w)
            self.depth -= 1
            self.emit("else:")
            self.depth += 1
        self.present(x, f.kind, nullable, w, group, self.translation_of(source, f.entity))
        if nullable:
            self.fixed(group, w)
            self.depth -= 1

    def translation_of(self, source: str, entity: Entity | None) -> str | None:
        """Return the expression that translates the string `{x}`; None if it needs no translation."""
        if not self.is_scoped or entity is None:
            return None
        if entity is ERROR_TEXT:
            return "text({x})"
        if entity.by is None:
            return "plain({x})"
        owner = source.rpartition(".")[0]
        return f"(plain({{x}}) if {owner}.{entity.by} in {entity.types} else {{x}})"

    def present(
        self,
        x: str,
        kind: Kind,
        nullable: bool,
        w: str,
        group: list[tuple[str, Fixed]],
        translation: str | None = None,
    ) -> None:
        if isinstance(kind, Struct):
            self.fixed(group, w)
            if nullable:
                self.emit(f"{w}(b'\\x01')")
            self.struct(x, kind, w)
        elif isinstance(kind, ArrayKind):
            self.length(f"len({x})", COUNT, w, group)
            self.fixed(group, w)
            self.elements(x, kind.element, w, translation)
        else:
            assert isinstance(kind, Varlen)
            if kind is STRING:
                self.emit(f"{x} = {x if translation is None else translation.format(x=x)}.encode()")
            self.length(f"len({x})", length_of(kind), w, group)
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

    def elements(self, x: str, element: Fixed | Varlen | Struct, w: str, translation: str | None = None) -> None:
        if isinstance(element, Fixed):
            self.fixed_elements(x, element, w)
            return
        if self.depth == 1:
            self.names["Encoded"] = EncodedElements
            if self.is_scoped:
                self.emit(
                    f"if type({x}) is Encoded and {x}.names is not names: raise OutsideScope({_NOT_TRANSLATED!r})"
                )
            self.emit(f"if type({x}) is Encoded: {w}({x}.encoded); {x} = ()")
        item = self.fresh("o")
        self.emit(f"for {item} in {x}:")
        self.depth += 1
        if isinstance(element, Struct):
            self.struct(item, element, w)
        else:
            group: list[tuple[str, Fixed]] = []
            self.present(item, element, False, w, group, translation)
        # The size of a tagged field is written before its value, so a tagged value cannot be split into chunks.
        if self.is_chunked and w == "w":
            self.emit("left -= 1")
            self.emit(
                f"if left <= 0: left = {limits.ELEMENTS_PER_CHUNK}; chunks.append(join(parts)); parts.clear(); yield"
            )
        self.emit("pass")
        self.depth -= 1

    def fixed_elements(self, x: str, element: Fixed, w: str) -> None:
        some = x
        # The size of a tagged field is written before its value, so a tagged value cannot be split into chunks.
        is_chunked = self.is_chunked and w == "w"
        if is_chunked:
            some, start = self.fresh("x"), self.fresh("n")
            self.emit(f"for {start} in range(0, len({x}), {limits.FIXED_PER_CHUNK}):")
            self.depth += 1
            self.emit(f"{some} = {x}[{start}:{start} + {limits.FIXED_PER_CHUNK}]")
        if element is UUID:
            self.emit(f"for u in {some}: {w}({self.refer('P', struct.Struct(element.format).pack)}(u))")
        else:
            pack = self.refer("P", struct.pack)
            self.emit(f"{w}({pack}(f'>{{len({some})}}{element.format}', *{some}))")
        if is_chunked:
            self.emit(f"left -= len({some}) >> {limits.FIXED_PER_ELEMENT_LOG2}")
            self.emit(
                f"if left <= 0: left = {limits.ELEMENTS_PER_CHUNK}; chunks.append(join(parts)); parts.clear(); yield"
            )
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

"""Generates encoders and decoders, as straight-line Python code, for each message and version on first use.

The generated code has no calls per field. Adjacent fields of fixed size become one `struct` call, which includes the
length of a following string. Nested structs are inlined, arrays become loops. Every count and length is checked against
the remaining bytes before memory is allocated. `spec.py` is the slow reference; a property test compares the two.

    decode(view, room) -> message   raises WireError; TooManyElements if its arrays have more than `room` elements
    encode(message) -> list[Buffer] the parts in order; large records stay views and are never copied

For messages that take too long to decode or encode without a pause, the same code is also generated in the form of
generators. These yield after each chunk and return the result.

The messages of clients with a scope are translated where they are decoded and encoded, by code that is generated for
them (`is_scoped`). Their decoders put the prefix of the scope, the last argument, before each name. Their encoders
remove it: `names`, the last argument, is the translation (`wire/names.py`). Declarations say which strings are names.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from kwire.wire.codec.decoder_code import ChunkedDecode, Decode, DecoderCode
from kwire.wire.codec.encoded_elements import EncodedElements
from kwire.wire.codec.encoder_code import SMALL_RECORDS_BYTES, ChunkedEncode, Encode, EncodeElements, EncoderCode
from kwire.wire.codec.limits import ELEMENTS_MAX, ELEMENTS_PER_CHUNK, FIXED_PER_CHUNK, STRING_BYTES_MAX
from kwire.wire.names import Names
from kwire.wire.schema import message_of
from kwire.wire.types import Buffer

__all__ = [
    "ELEMENTS_MAX",
    "ELEMENTS_PER_CHUNK",
    "FIXED_PER_CHUNK",
    "SMALL_RECORDS_BYTES",
    "STRING_BYTES_MAX",
    "ChunkedDecode",
    "ChunkedEncode",
    "EncodedElements",
    "chunked_decoder",
    "chunked_encoder",
    "decode_message",
    "decoder",
    "elements_encoder",
    "encode_message",
    "encoder",
]

M = TypeVar("M")

_decoders: dict[tuple[type[Any], int, bool], Decode] = {}
_chunked_decoders: dict[tuple[type[Any], int, bool], ChunkedDecode] = {}
_encoders: dict[tuple[type[Any], int, bool], Encode] = {}
_chunked_encoders: dict[tuple[type[Any], int, bool], ChunkedEncode] = {}
_element_encoders: dict[tuple[type[Any], str, int, bool], EncodeElements] = {}


def decoder(cls: type[M], version: int, *, is_scoped: bool = False) -> Callable[..., M]:
    """Return the decoder of a message class in one version, generated once. Its second argument is `room`."""
    try:
        return _decoders[cls, version, is_scoped]
    except KeyError:
        made = DecoderCode(message_of(cls), version, is_scoped=is_scoped).compile()
        _decoders[cls, version, is_scoped] = made
        return made


def chunked_decoder(cls: type[Any], version: int, *, is_scoped: bool = False) -> ChunkedDecode:
    """Return the decoder in the form of a generator, for messages of up to ELEMENTS_MAX elements."""
    try:
        return _chunked_decoders[cls, version, is_scoped]
    except KeyError:
        made = DecoderCode(message_of(cls), version, is_chunked=True, is_scoped=is_scoped).compile_chunked()
        _chunked_decoders[cls, version, is_scoped] = made
        return made


def encoder(cls: type[Any], version: int, *, is_scoped: bool = False) -> Encode:
    """Return the encoder of a message class in one version, generated once."""
    try:
        return _encoders[cls, version, is_scoped]
    except KeyError:
        made = EncoderCode(message_of(cls), version, is_scoped=is_scoped).compile()
        _encoders[cls, version, is_scoped] = made
        return made


def chunked_encoder(cls: type[Any], version: int, *, is_scoped: bool = False) -> ChunkedEncode:
    """Return the encoder in the form of a generator."""
    try:
        return _chunked_encoders[cls, version, is_scoped]
    except KeyError:
        made = EncoderCode(message_of(cls), version, is_chunked=True, is_scoped=is_scoped).compile_chunked()
        _chunked_encoders[cls, version, is_scoped] = made
        return made


def elements_encoder(cls: type[Any], array: str, version: int, *, is_scoped: bool = False) -> EncodeElements:
    """Return the encoder of some elements of a top-level array. `EncodedElements` holds the result and the count."""
    try:
        return _element_encoders[cls, array, version, is_scoped]
    except KeyError:
        made = EncoderCode(message_of(cls), version, is_scoped=is_scoped).compile_elements(array)
        _element_encoders[cls, array, version, is_scoped] = made
        return made


def decode_message(cls: type[M], version: int, data: Buffer) -> M:
    return decoder(cls, version)(data)


def encode_message(message: object, version: int, names: Names | None = None) -> bytes:
    """Encode a message; with `names` as a client with a scope sees it."""
    if names is None:
        return b"".join(encoder(type(message), version)(message))
    return b"".join(encoder(type(message), version, is_scoped=True)(message, names))

"""WebSocket frames of the server's side (RFC 6455), without I/O: bytes in, messages out, and frames to send.

No extension is agreed on, so the reserved bits must be zero. A broken rule ends the connection: `failure` says with
which close code and why, and what came before it is still handed out. Frames can be tiny, and there may be forty
thousand of them in what the operating system hands over at once: so many are taken at a time.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hashlib import sha1
from typing import NamedTuple

try:
    # Forty times as fast as ours, and there wherever aiohttp is installed with its compiled parts.
    from aiohttp._websocket.mask import _websocket_mask_cython as _compiled_mask  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover
    _compiled_mask = None

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL = 0x80
MASKED = 0x80
_WHOLE_TEXT = FINAL | TEXT
_NO_MASK = bytes(4)
CONTROL_BYTES_MAX = 125
# Frames that are taken from what came, before others have their turn: each may be a command.
FRAMES_AT_ONCE = 200
# A message that comes in crumbs is put together now and then: each crumb has the weight of an object.
PARTS_MAX = 1000

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
NO_CODE = 1005
BAD_DATA = 1007
TOO_SLOW = 1008
TOO_BIG = 1009
TRY_AGAIN_LATER = 1013

_ACCEPT_SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES = 16

Message = tuple[int, bytearray]
MaskInPlace = Callable[[bytes, bytearray], None]


class Failure(NamedTuple):
    """Why a connection must end."""

    code: int
    reason: str


def unmasked_slowly(mask: bytes, payload: bytearray) -> bytearray:
    """In pure Python: both as one large number."""
    size = len(payload)
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    return bytearray((int.from_bytes(payload, "little") ^ pattern).to_bytes(size, "little"))


def trusted_mask(compiled: MaskInPlace | None) -> MaskInPlace | None:
    """aiohttp promises nothing for a name of its own: what does not do what ours does is not used."""
    if compiled is None:
        return None
    mask, sample = bytes((1, 2, 3, 255)), bytearray(range(37))
    wanted = unmasked_slowly(mask, sample)
    try:
        compiled(mask, sample)
    except Exception:
        return None
    return compiled if sample == wanted else None


_mask_in_place = trusted_mask(_compiled_mask)


def unmasked(mask: bytes, payload: bytearray) -> bytearray:
    """The payload without its mask; the same object if that can be done in place."""
    if mask == _NO_MASK or not payload:
        return payload
    if _mask_in_place is not None:
        _mask_in_place(mask, payload)
        return payload
    return unmasked_slowly(mask, payload)


class FrameReader:
    """Puts messages together. `failure` is set once a rule was broken; nothing is read any more then.

    `is_behind`: of what came there is more to take; feed it nothing to go on. `message_count` messages were whole,
    `held_bytes` of the next one are kept.
    """

    __slots__ = ("_begun", "_bytes_max", "_kind", "_missing_bytes", "_parts", "failure", "held_bytes", "is_behind",
                 "message_count")  # fmt: skip

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self.failure: Failure | None = None
        self.is_behind = False
        self.held_bytes = self.message_count = 0
        # What came of a frame that is not whole yet, and how much must come before it is worth looking again.
        self._parts: list[bytes] = []
        self._missing_bytes = 0
        # Of a message in several frames: what came so far, and whether it is text.
        self._begun: bytearray | None = None
        self._kind = CONTINUATION

    def feed(self, data: bytes) -> list[Message]:
        """The next messages and control frames that are whole: (TEXT, BINARY, CLOSE, PING or PONG; payload)."""
        found: list[Message] = []
        if self.failure is not None:
            return found
        if self._parts:
            self._parts.append(data)
            self.held_bytes += len(data)
            self._missing_bytes -= len(data)
            if self._missing_bytes > 0:
                if len(self._parts) >= PARTS_MAX:
                    self._parts = [b"".join(self._parts)]
                return found
            data = b"".join(self._parts)
            self._parts = []
        view = memoryview(data)
        position, end, bytes_max = 0, len(data), self._bytes_max
        missing = 0
        for _ in range(FRAMES_AT_ONCE):
            left = end - position
            if left < 2:
                missing = 2 - left
                break
            first, length = data[position], data[position + 1]
            if length < MASKED:
                self._fail(PROTOCOL_ERROR, "a client's frames must be masked")
                return found
            length -= MASKED
            if first != _WHOLE_TEXT and not self._may_come(first, length):
                return found
            start = position + 6
            if length >= 126:
                start += 2 if length == 126 else 8
                if start > end:
                    missing = start - end
                    break
                length = int.from_bytes(view[position + 2 : start - 4], "big")
            behind = start + length
            if length > bytes_max:
                self._fail(TOO_BIG, f"a message may have {bytes_max} bytes")
                return found
            if behind > end:
                missing = behind - end
                break
            payload = unmasked(data[start - 4 : start], bytearray(view[start:behind]))
            position = behind
            if first != _WHOLE_TEXT or self._begun is not None:
                if not self._take(first, payload, found):
                    return found
            elif payload.isascii() or self._is_text(payload):
                self.message_count += 1
                found.append((TEXT, payload))
            else:
                return found
        if position < end:
            self._parts = [data[position:]] if position else [data]
            self._missing_bytes = missing
        self.is_behind = not missing and position < end
        self.held_bytes = end - position if self._begun is None else end - position + len(self._begun)
        return found

    def _may_come(self, first: int, length: int) -> bool:
        """What can be said of a frame by its first two bytes; `length` is 126 or 127 if a longer one follows."""
        opcode = first & 0x0F
        if first & 0x70:
            return self._fail(PROTOCOL_ERROR, "no extension was agreed on")
        if opcode >= CLOSE:
            if opcode > PONG:
                return self._fail(PROTOCOL_ERROR, f"there is no opcode {opcode}")
            if not first & FINAL or length > CONTROL_BYTES_MAX:
                return self._fail(PROTOCOL_ERROR, "a control frame is short and in one piece")
        elif opcode > BINARY:
            return self._fail(PROTOCOL_ERROR, f"there is no opcode {opcode}")
        elif opcode == CONTINUATION and self._begun is None:
            return self._fail(PROTOCOL_ERROR, "nothing was begun that could go on")
        return True

    def _take(self, first: int, payload: bytearray, found: list[Message]) -> bool:
        """A frame that is not a whole text by itself."""
        opcode = first & 0x0F
        if opcode >= CLOSE:
            found.append((opcode, payload))
            return True
        if opcode == CONTINUATION:
            assert self._begun is not None
            self._begun += payload
        elif self._begun is not None:
            return self._fail(PROTOCOL_ERROR, "a message was begun before the last one had ended")
        else:
            self._begun, self._kind = payload, opcode
        if len(self._begun) > self._bytes_max:
            return self._fail(TOO_BIG, f"a message may have {self._bytes_max} bytes")
        if first & FINAL:
            whole, self._begun = self._begun, None
            if self._kind == TEXT and not self._is_text(whole):
                return False
            self.message_count += 1
            found.append((self._kind, whole))
        return True

    def _is_text(self, payload: bytearray) -> bool:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return self._fail(BAD_DATA, "a text must be UTF-8")
        return True

    def _fail(self, code: int, reason: str) -> bool:
        self.give_up(Failure(code, reason))
        return False

    def give_up(self, failure: Failure) -> None:
        """Read nothing more, and forget what is held."""
        self.failure = failure
        self._parts, self._begun = [], None
        self.held_bytes = 0
        self.is_behind = False


def frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    """A frame to send, as a server's must be without a mask. One that is not final begins or continues a message."""
    size = len(payload)
    first = FINAL | opcode if is_final else opcode
    if size < 126:
        return b"%c%c%b" % (first, size, payload)
    if size < 65536:
        return b"%c\x7e%b%b" % (first, size.to_bytes(2, "big"), payload)
    return b"%c\x7f%b%b" % (first, size.to_bytes(8, "big"), payload)


def text_frame(payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return frame(TEXT, payload)


def close_frame(code: int, reason: str = "") -> bytes:
    if code == NO_CODE:
        return frame(CLOSE, b"")
    text = reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore")
    return frame(CLOSE, code.to_bytes(2, "big") + text.encode())


def answer_to_close(payload: bytearray) -> Failure:
    """With what a client's close frame is answered: its own code, or what is wrong with it."""
    if not payload:
        return Failure(NO_CODE, "")
    if len(payload) == 1:
        return Failure(PROTOCOL_ERROR, "half a close code")
    code = int.from_bytes(payload[:2], "big")
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        return Failure(PROTOCOL_ERROR, "no close code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return Failure(BAD_DATA, "a text must be UTF-8")
    return Failure(code, "")


def accept_of(key: str) -> str | None:
    """The answer to a client's Sec-WebSocket-Key; None if that is no key."""
    try:
        raw = key.encode("ascii")
        if len(b64decode(raw, validate=True)) != KEY_BYTES:
            return None
    except (UnicodeEncodeError, Base64Error):
        return None
    return b64encode(sha1(raw + _ACCEPT_SALT, usedforsecurity=False).digest()).decode()

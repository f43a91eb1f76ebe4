"""The server side of the WebSocket protocol (RFC 6455), without I/O: parses received frames and creates frames to send.

No extension is negotiated, so the reserved bits must be zero. After a protocol error, `failure` has the close code and
the reason, and the caller must end the connection. Messages that were received before the error are still returned. One
read from the operating system can contain forty thousand small frames. So one call of `feed` processes at most
FRAMES_PER_CHUNK frames.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hashlib import sha1
from typing import NamedTuple

try:
    # aiohttp's function is forty times as fast as `unmasked_in_python`. It exists if aiohttp is installed with its
    # compiled extensions.
    from aiohttp._websocket.mask import _websocket_mask_cython as _compiled_mask  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover
    _compiled_mask = None

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL = 0x80
MASKED = 0x80
_WHOLE_TEXT = FINAL | TEXT
_NO_MASK = bytes(4)
CONTROL_BYTES_MAX = 125
# The maximum number of frames that are processed without yielding to the event loop. Each frame may be a command.
FRAMES_PER_CHUNK = 200
# The pieces of an incomplete frame are joined when there are this many, because each piece has the overhead of an
# object.
PARTS_MAX = 1000

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
NO_CODE = 1005
BAD_DATA = 1007
POLICY_VIOLATION = 1008
TOO_BIG = 1009
TRY_AGAIN_LATER = 1013

_ACCEPT_SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES = 16

Message = tuple[int, bytearray]
MaskInPlace = Callable[[bytes, bytearray], None]


class Failure(NamedTuple):
    """The close code and the reason of the close frame that ends a connection."""

    code: int
    reason: str


def unmasked_in_python(mask: bytes, payload: bytearray) -> bytearray:
    """Return the unmasked payload, computed in pure Python as the XOR of two large integers."""
    size = len(payload)
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    return bytearray((int.from_bytes(payload, "little") ^ pattern).to_bytes(size, "little"))


def verified_mask(compiled: MaskInPlace | None) -> MaskInPlace | None:
    """Return the compiled function if its result for a sample is correct, else None. The check is necessary because the
    function is private to aiohttp and may change."""
    if compiled is None:
        return None
    mask, sample = bytes((1, 2, 3, 255)), bytearray(range(37))
    wanted = unmasked_in_python(mask, sample)
    try:
        compiled(mask, sample)
    except Exception:
        return None
    return compiled if sample == wanted else None


_mask_in_place = verified_mask(_compiled_mask)


def unmasked(mask: bytes, payload: bytearray) -> bytearray:
    """Return the unmasked payload. If possible, it is unmasked in place and the same object is returned."""
    if mask == _NO_MASK or not payload:
        return payload
    if _mask_in_place is not None:
        _mask_in_place(mask, payload)
        return payload
    return unmasked_in_python(mask, payload)


class FrameReader:
    """Parses frames and assembles messages. After a protocol error `failure` is set, and further bytes are ignored.

    If `has_more` is true, more frames can be processed: call `feed(b"")`. `message_count` is the number of complete
    messages so far. `held_bytes` is the number of received bytes that are not processed yet.
    """

    __slots__ = ("_bytes_max", "_kind", "_missing_bytes", "_partial", "_parts", "failure", "has_more", "held_bytes",
                 "message_count")  # fmt: skip

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self.failure: Failure | None = None
        self.has_more = False
        self.held_bytes = self.message_count = 0
        # The received bytes that are not parsed yet, and the number of bytes that are missing to continue parsing.
        self._parts: list[bytes] = []
        self._missing_bytes = 0
        # The payload received so far of a message in several frames, and the opcode of its first frame.
        self._partial: bytearray | None = None
        self._kind = CONTINUATION

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes and return the next complete messages and control frames, as pairs of an opcode (TEXT, BINARY,
        CLOSE, PING or PONG) and a payload."""
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
        for _ in range(FRAMES_PER_CHUNK):
            left = end - position
            if left < 2:
                missing = 2 - left
                break
            first, length = data[position], data[position + 1]
            if length < MASKED:
                self._fail(PROTOCOL_ERROR, "a client's frames must be masked")
                return found
            length -= MASKED
            if first != _WHOLE_TEXT and not self._is_valid_header(first, length):
                return found
            start = position + 6
            if length >= 126:
                start += 2 if length == 126 else 8
                if start > end:
                    missing = start - end
                    break
                length = int.from_bytes(view[position + 2 : start - 4], "big")
            frame_end = start + length
            if length > bytes_max:
                self._fail(TOO_BIG, f"a message may have at most {bytes_max} bytes")
                return found
            if frame_end > end:
                missing = frame_end - end
                break
            payload = unmasked(data[start - 4 : start], bytearray(view[start:frame_end]))
            position = frame_end
            if first != _WHOLE_TEXT or self._partial is not None:
                if not self._add_frame(first, payload, found):
                    return found
            elif payload.isascii() or self._is_text(payload):
                self.message_count += 1
                found.append((TEXT, payload))
            else:
                return found
        if position < end:
            self._parts = [data[position:]] if position else [data]
            self._missing_bytes = missing
        self.has_more = not missing and position < end
        self.held_bytes = end - position if self._partial is None else end - position + len(self._partial)
        return found

    def _is_valid_header(self, first: int, length: int) -> bool:
        """Check the first two bytes of a frame. Set `failure` and return False if they are invalid. `length` is 126 or
        127 if an extended length follows."""
        opcode = first & 0x0F
        if first & 0x70:
            return self._fail(PROTOCOL_ERROR, "reserved bits are set, but no extension was negotiated")
        if opcode >= CLOSE:
            if opcode > PONG:
                return self._fail(PROTOCOL_ERROR, f"unknown opcode {opcode}")
            if not first & FINAL or length > CONTROL_BYTES_MAX:
                return self._fail(
                    PROTOCOL_ERROR, f"a control frame must be final and have at most {CONTROL_BYTES_MAX} bytes"
                )
        elif opcode > BINARY:
            return self._fail(PROTOCOL_ERROR, f"unknown opcode {opcode}")
        elif opcode == CONTINUATION and self._partial is None:
            return self._fail(PROTOCOL_ERROR, "a continuation frame without a message to continue")
        return True

    def _add_frame(self, first: int, payload: bytearray, found: list[Message]) -> bool:
        """Add a frame that is not a complete text message. Append a control frame, or a message that is now complete,
        to `found`. Set `failure` and return False for a protocol error."""
        opcode = first & 0x0F
        if opcode >= CLOSE:
            found.append((opcode, payload))
            return True
        if opcode == CONTINUATION:
            assert self._partial is not None
            self._partial += payload
        elif self._partial is not None:
            return self._fail(PROTOCOL_ERROR, "a new message before the end of the previous one")
        else:
            self._partial, self._kind = payload, opcode
        if len(self._partial) > self._bytes_max:
            return self._fail(TOO_BIG, f"a message may have at most {self._bytes_max} bytes")
        if first & FINAL:
            whole, self._partial = self._partial, None
            if self._kind == TEXT and not self._is_text(whole):
                return False
            self.message_count += 1
            found.append((self._kind, whole))
        return True

    def _is_text(self, payload: bytearray) -> bool:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return self._fail(BAD_DATA, "text must be valid UTF-8")
        return True

    def _fail(self, code: int, reason: str) -> bool:
        self.abort(Failure(code, reason))
        return False

    def abort(self, failure: Failure) -> None:
        """Set `failure` and discard the bytes that are held. Further bytes are ignored."""
        self.failure = failure
        self._parts, self._partial = [], None
        self.held_bytes = 0
        self.has_more = False


def frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    """Return a frame to send. A server's frames have no mask. If the frame is not final, more frames of the same
    message must follow."""
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
    """Return the code and reason of the answer to a client's close frame: the client's code, or an error code if the
    frame is invalid."""
    if not payload:
        return Failure(NO_CODE, "")
    if len(payload) == 1:
        return Failure(PROTOCOL_ERROR, "a close code must have two bytes")
    code = int.from_bytes(payload[:2], "big")
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        return Failure(PROTOCOL_ERROR, "invalid close code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return Failure(BAD_DATA, "text must be valid UTF-8")
    return Failure(code, "")


def accept_of(key: str) -> str | None:
    """Return the value of Sec-WebSocket-Accept for a client's Sec-WebSocket-Key; None if the key is invalid."""
    try:
        raw = key.encode("ascii")
        if len(b64decode(raw, validate=True)) != KEY_BYTES:
            return None
    except (UnicodeEncodeError, Base64Error):
        return None
    return b64encode(sha1(raw + _ACCEPT_SALT, usedforsecurity=False).digest()).decode()

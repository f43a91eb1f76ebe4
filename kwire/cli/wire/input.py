"""Reads bytes from raw input, a hex stream, or the hex dump of a common program.

    xxd              00000000: 0000 000f 0012 0000 0000 0001 0005 6b77  ..............kw
    hexdump -C       00000000  00 00 00 0f 00 12 00 00  00 00 00 01 00 05 6b 77  |..............kw|
    od, Wireshark    0000   00 00 00 0f 00 12 00 00 00 00 00 01 00 05 6b 77   ..............kw
    hex stream       0000000f00120000…, 00 00 00 0f, 0x00, 0x00, \\x00\\x00, 00:00:00:0f

The offset at the beginning of each line of a dump is checked, so that a missing line is detected.
"""

import re

LINE_BYTES_MAX = 64

# In both patterns each digit can match in only one way. Otherwise a line without a match could take exponential time.
_XXD = re.compile(r"([0-9a-f]{4,16}):\s*([0-9a-f]{2,}(?: [0-9a-f]{2,})*)(?:\s.*)?", re.IGNORECASE)
# The text column begins after three spaces or a bar. Two spaces separate the two halves of the hex column.
_DUMP = re.compile(r"([0-9a-f]{4,16})(?: {1,3}|\t)((?:[0-9a-f]{2}(?![0-9a-f]) {0,2})*)(?: .*|\|.*)?", re.IGNORECASE)
_BARE_OFFSET = re.compile(r"[0-9a-f]{4,16}:?", re.IGNORECASE)
_PREFIXES = re.compile(r"0x|\\x", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,:;{}\"'-]+")
_TEXT = frozenset(range(32, 127)) | {9, 10, 13}


class NotHex(ValueError):
    """The text is not hex. The message names the line."""


def bytes_of(data: bytes) -> bytes:
    """Return the bytes that a file's content describes. ASCII text is decoded as hex. Other content is raw bytes."""
    # Raw frames are not mistaken for text: a frame begins with its size, whose first byte is zero below 16 MiB.
    text = data.removeprefix(b"\xef\xbb\xbf")
    return hex_bytes(text.decode("ascii")) if text and set(text) <= _TEXT else data


def hex_bytes(text: str) -> bytes:
    """Return the bytes of a hex dump or of a stream of hex digits. Lines that begin with # are comments."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    return _dump(lines) if _is_dump([line for _, line in lines]) else _stream(lines)


def _is_dump(lines: list[str]) -> bool:
    if not lines:
        return False
    found = _split(lines[0])
    if found is None or found[0] != 0 or not found[1]:
        return False
    if ":" in lines[0][:17] or len(lines) == 1:
        # A single line "00000000 …" is a dump. As a stream of hex digits it would begin with a frame of size 0.
        return True
    following = _split(lines[1]) if lines[1] != "*" else None
    return lines[1] == "*" or (following is not None and following[0] == len(found[1]))


def _split(line: str) -> tuple[int, bytes] | None:
    """Return the offset and the bytes of one line of a dump. Return None if the line is not a line of a dump."""
    if _BARE_OFFSET.fullmatch(line):
        return int(line.rstrip(":"), 16), b""
    found = _XXD.fullmatch(line)
    if found is None:
        found = _DUMP.fullmatch(line)
        if found is None or not found[2]:
            return None
    digits = found[2].replace(" ", "")
    if len(digits) % 2 or len(digits) > 2 * LINE_BYTES_MAX:
        return None
    return int(found[1], 16), bytes.fromhex(digits)


def _dump(lines: list[tuple[int, str]]) -> bytes:
    out = bytearray()
    last, is_repeated = b"", False
    for number, line in lines:
        if line == "*":  # hexdump prints * in place of lines that repeat the previous line.
            is_repeated = True
            continue
        found = _split(line)
        if found is None:
            raise NotHex(f"line {number}: not a line of a hex dump: {line[:40]!r}")
        offset, data = found
        if is_repeated and last and (offset - len(out)) % len(last) == 0 and offset - len(out) <= _REPEATED_BYTES_MAX:
            out += last * ((offset - len(out)) // len(last))
            is_repeated = False
        if offset != len(out):
            raise NotHex(f"line {number}: the dump continues at {offset:#x}, but {len(out):#x} bytes came before")
        out += data
        last = data
    return bytes(out)


# The maximum number of bytes that a line "*" may replace. No frame is larger.
_REPEATED_BYTES_MAX = 256 * 1024 * 1024


def _stream(lines: list[tuple[int, str]]) -> bytes:
    out = bytearray()
    pending = ""
    for number, line in lines:
        for word in _SEPARATORS.split(_PREFIXES.sub(" ", line)):
            if not word:
                continue
            try:
                int(word, 16)
            except ValueError:
                raise NotHex(f"line {number}: {word[:40]!r} is not hex") from None
            if "_" in word or word[0] in "+-":
                raise NotHex(f"line {number}: {word[:40]!r} is not hex")
            # Words are joined before they are decoded, so a byte may be divided between two words. In lists of bytes
            # every byte must have two digits.
            pending += word
        whole = len(pending) // 2 * 2
        out += bytes.fromhex(pending[:whole])
        pending = pending[whole:]
    if pending:
        raise NotHex("an odd number of hex digits")
    return bytes(out)

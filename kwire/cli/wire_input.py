"""Bytes from whatever people have of them: raw, a hex stream, or the dump of one of the usual programs.

    xxd              00000000: 0000 000f 0012 0000 0000 0001 0005 6b77  ..............kw
    hexdump -C       00000000  00 00 00 0f 00 12 00 00  00 00 00 01 00 05 6b 77  |..............kw|
    od, Wireshark    0000   00 00 00 0f 00 12 00 00 00 00 00 01 00 05 6b 77   ..............kw
    a stream         0000000f00120000…, 00 00 00 0f, 0x00, 0x00, \\x00\\x00, 00:00:00:0f

The lines of a dump say how far they are; that is checked, so a line that was lost in copying is found.
"""

import re

LINE_BYTES_MAX = 64

# One way only to take each digit, or a line that fits nothing would be tried in endless ways.
_XXD = re.compile(r"([0-9a-f]{4,16}):\s*([0-9a-f]{2,}(?: [0-9a-f]{2,})*)(?:\s.*)?", re.IGNORECASE)
# The letters at the right stand behind three spaces or a bar; two spaces are the gap in the middle of a line.
_DUMP = re.compile(r"([0-9a-f]{4,16})(?: {1,3}|\t)((?:[0-9a-f]{2}(?![0-9a-f]) {0,2})*)(?: .*|\|.*)?", re.IGNORECASE)
_BARE_OFFSET = re.compile(r"[0-9a-f]{4,16}:?", re.IGNORECASE)
_PREFIXES = re.compile(r"0x|\\x", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,:;{}\"'-]+")
_TEXT = frozenset(range(32, 127)) | {9, 10, 13}


class NotHex(ValueError):
    """Text that is not hex; the message says where it stops being so."""


def bytes_of(data: bytes) -> bytes:
    """The bytes meant by the content of a file: itself, unless it is text."""
    # Every frame begins with a size, and one below 16 MiB with a zero byte: no text.
    text = data.removeprefix(b"\xef\xbb\xbf")
    return hex_bytes(text.decode("ascii")) if text and set(text) <= _TEXT else data


def hex_bytes(text: str) -> bytes:
    """The bytes that a dump or a stream of hex digits shows. Lines that begin with # are comments."""
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
        # "00000000 …" on a single line could be a stream only if a frame of no bytes came first.
        return True
    following = _split(lines[1]) if lines[1] != "*" else None
    return lines[1] == "*" or (following is not None and following[0] == len(found[1]))


def _split(line: str) -> tuple[int, bytes] | None:
    """The offset and the bytes of one line of a dump."""
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
        if line == "*":  # hexdump: lines like the one before
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
            raise NotHex(f"line {number}: the dump goes on at {offset:#x}, but {len(out):#x} bytes came before")
        out += data
        last = data
    return bytes(out)


# A star stands for any number of lines; this is more than any frame has.
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
            # A single digit beside others is a byte without its zero only in lists, which have two digits everywhere.
            pending += word
        whole = len(pending) // 2 * 2
        out += bytes.fromhex(pending[:whole])
        pending = pending[whole:]
    if pending:
        raise NotHex("an odd number of hex digits")
    return bytes(out)

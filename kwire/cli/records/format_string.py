r"""Format strings for records, with the meanings that they have in kcat.

%s value, %S its length, %R its length as four bytes, %k key, %K its length, %h headers, %T timestamp in milliseconds,
%t topic, %p partition, %o offset, %% a percent sign; \n \r \t \xHH \\. A null key or value is printed as nothing, its
length as -1.
"""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kwire.cli.kafka.batch_decoding import Headers, RecordFields

DEFAULT = "%s\\n"

# For each letter: its conversion in the template, and the expression of its value.
_FIELDS = {
    "s": (b"%b", "null if value is None else value"),
    "S": (b"%d", "-1 if value is None else len(value)"),
    "R": (b"%b", "pack_length(-1 if value is None else len(value))"),
    "k": (b"%b", "null if key is None else key"),
    "K": (b"%d", "-1 if key is None else len(key)"),
    "h": (b"%b", "headers_text(headers)"),
    "T": (b"%d", "timestamp"),
    "o": (b"%d", "offset"),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{1,2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
_LENGTH = struct.Struct(">i")

Render = Callable[[Sequence[RecordFields], bytes, bytes], bytes]


class ValueFormat(NamedTuple):
    """A format that has the value once, and otherwise only fixed text around it."""

    before: bytes
    after: bytes

    def render(self, values: Sequence[bytes | None], null: bytes) -> bytes:
        if not values:
            return b""
        if None in values:
            values = [null if value is None else value for value in values]
        return b"".join((self.before, (self.after + self.before).join(values), self.after))  # type: ignore[arg-type]


class FormatString:
    """A parsed format string. Raises ValueError if the text is not one."""

    def __init__(self, text: str, null: bytes = b"") -> None:
        self._null = null
        # Fixed text as bytes, fields as their letters.
        self._parts = _parse(text)
        letters = [part for part in self._parts if isinstance(part, str)]
        self.value_format = self._value_format() if letters == ["s"] else None
        self._render = _renderer([letter for letter in letters if letter not in "tp"])
        self._templates: dict[tuple[str, int], bytes] = {}

    def values(self, values: Sequence[bytes | None]) -> bytes:
        """Return values as text. Only for formats with a `value_format`."""
        assert self.value_format is not None
        return self.value_format.render(values, self._null)

    def records(self, topic: str, partition: int, records: Sequence[RecordFields]) -> bytes:
        """Return records of a partition as text."""
        template = self._templates.get((topic, partition))
        if template is None:
            template = self._templates[topic, partition] = self._template(topic, partition)
        return self._render(records, template, self._null)

    def _value_format(self) -> ValueFormat:
        place = self._parts.index("s")
        before, after = self._parts[:place], self._parts[place + 1 :]
        return ValueFormat(b"".join(before), b"".join(after))  # type: ignore[arg-type]

    def _template(self, topic: str, partition: int) -> bytes:
        """Return the format for the operator %, with topic and partition as fixed text."""
        fixed = {"t": topic.encode(), "p": b"%d" % partition}
        parts = []
        for part in self._parts:
            text = fixed.get(part, part) if isinstance(part, str) else part
            parts.append(_FIELDS[text][0] if isinstance(text, str) else text.replace(b"%", b"%%"))
        return b"".join(parts)


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with the escapes \n \r \t \0 \xHH \\, such as a delimiter."""
    return b"".join(_literal(match) or match[0].encode() for match in _TOKEN.finditer(text))


def headers_text(headers: Headers) -> bytes:
    """Return headers as kcat prints them: name=value, separated by commas; NULL for a null value."""
    return b",".join([name + b"=" + (b"NULL" if value is None else value) for name, value in headers])


def _parse(text: str) -> list[bytes | str]:
    parts: list[bytes | str] = []
    for match in _TOKEN.finditer(text):
        letter = match["field"]
        if letter is None:
            parts.append(_literal(match))
        elif letter == "%":
            parts.append(b"%")
        elif letter and letter in "".join(_FIELDS) + "tp":
            parts.append(letter)
        else:
            raise ValueError(
                f"--format: %{letter} is not a field; "
                "the fields are %s %S %R %k %K %h %T %t %p %o, and %% is a percent sign"
            )
    return parts


def _literal(match: re.Match[str]) -> bytes:
    """Return the bytes of fixed text or of an escape; b"" for a field."""
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes((int(match["hex"], 16),))
    if match["escape"] is not None:
        return _ESCAPES.get(match["escape"], (match["escape"] or "\\").encode())
    return b""


def _renderer(letters: Sequence[str]) -> Render:
    """Return a function that formats many records: one expression without a call per field."""
    fields = "".join(f"{_FIELDS[letter][1]}, " for letter in letters)
    source = (
        "def render(records, template, null):\n"
        f"    return b''.join([template % ({fields})"
        " for offset, timestamp, key, value, headers in records])\n"
    )
    names: dict[str, Any] = {"headers_text": headers_text, "pack_length": _LENGTH.pack}
    exec(source, names)
    render: Render = names["render"]
    return render

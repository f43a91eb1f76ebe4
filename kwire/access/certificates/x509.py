"""The fields of an X.509 certificate that kwire reads: the subject's distinguished name and the end of validity.

The subject is formatted as RFC 2253 text exactly as Java's `X500Principal.getName()` does, because ACLs and mapping
rules of Kafka are written for that text. Python's `ssl` module does not keep the types of the values, which this form
needs. OpenSSL has verified a client's certificate before it is read here. Input that is not DER raises ValueError.
"""

import calendar
import re
from collections.abc import Iterator
from typing import NamedTuple

# Tags of ASN.1 (X.690).
_INTEGER, _OBJECT_ID, _SEQUENCE, _SET, _VERSION = 0x02, 0x06, 0x30, 0x31, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString: Java shows these as text.
_TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
# RFC 2253, section 2.3. Java writes every other type as a dotted number, with its value in hexadecimal.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_PADDING = " \r"
_TIME = re.compile(rb"(\d{2}|\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z")


class _Element(NamedTuple):
    """One element of DER: its tag, its content, and the whole encoding."""

    tag: int
    content: bytes
    encoding: bytes


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate as RFC 2253 text, the most specific part first."""
    names = [_relative_name(one.content) for one in _children(_fields(certificate)[4], _SET)]
    return ",".join(reversed(names))


def not_after(certificate: bytes) -> int:
    """Return the end of a DER certificate's validity, in seconds since 1970."""
    validity = list(_elements(_fields(certificate)[3].content))
    if len(validity) != 2 or validity[1].tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("the validity of the certificate is not valid DER")
    match = _TIME.fullmatch(validity[1].content)
    if match is None:
        raise ValueError("the end of validity of the certificate is not a time in UTC")
    year, *rest = map(int, match.groups())
    if validity[1].tag == _UTC_TIME:
        year += 1900 if year >= 50 else 2000
    return calendar.timegm((year, *rest, 0, 0, 0))


def _fields(certificate: bytes) -> list[_Element]:
    """Return serial number, signature algorithm, issuer, validity, subject and further fields."""
    (outer,) = _elements(certificate)
    signed = next(_children(outer, _SEQUENCE), None)
    fields = [] if signed is None else list(_elements(signed.content))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6 or fields[0].tag != _INTEGER or any(one.tag != _SEQUENCE for one in fields[1:5]):
        raise ValueError("the certificate is not valid DER")
    return fields


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start = position
        if position + 2 > len(data):
            raise ValueError("DER ends within an element")
        tag, length = data[position], data[position + 1]
        position += 2
        if tag & 0x1F == 0x1F:
            raise ValueError("DER has a tag of several bytes")
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or position + count > len(data):
                raise ValueError("DER has a length that is not valid")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise ValueError("DER ends within an element")
        yield _Element(tag, data[position : position + length], data[start : position + length])
        position += length


def _children(element: _Element, tag: int) -> Iterator[_Element]:
    for child in _elements(element.content):
        if child.tag != tag:
            # The fields after the first one of a certificate have other tags, and are not read.
            if tag == _SEQUENCE:
                return
            raise ValueError("DER has an element of an unexpected type")
        yield child


def _relative_name(content: bytes) -> str:
    parts = []
    for attribute in _elements(content):
        pair = list(_elements(attribute.content))
        if attribute.tag != _SEQUENCE or len(pair) != 2 or pair[0].tag != _OBJECT_ID:
            raise ValueError("a distinguished name is not valid DER")
        parts.append(_attribute(_object_id(pair[0].content), pair[1]))
    if not parts:
        raise ValueError("a distinguished name has an empty part")
    return "+".join(parts)


def _attribute(object_id: str, value: _Element) -> str:
    keyword = _KEYWORDS.get(object_id)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or object_id}=#{value.encoding.hex()}"
    # Java decodes every type as UTF-8.
    return f"{keyword}={_escape(value.content.decode(errors='replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{one}" if one in _ESCAPED else "\\00" if one == "\0" else one for one in text)
    stripped = escaped.strip(_PADDING)
    if len(stripped) == len(escaped):
        return escaped
    leading = len(escaped) - len(escaped.lstrip(_PADDING))
    trailing = len(escaped) - max(len(escaped.rstrip(_PADDING)), leading)
    return (
        "".join(f"\\{one}" for one in escaped[:leading])
        + escaped[leading : len(escaped) - trailing]
        + "".join(f"\\{one}" for one in escaped[len(escaped) - trailing :])
    )


def _object_id(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise ValueError("an object identifier is not valid DER")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

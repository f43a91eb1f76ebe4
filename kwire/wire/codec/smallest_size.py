"""The minimum encoded sizes of values."""

from kwire.wire.schema import Field, Kind, Struct
from kwire.wire.types import STRING, Fixed


def smallest_size(kind: Kind, version: int, flexible: bool) -> int:
    """Return the minimum encoded size of a value of this kind. The decoder uses it to check the counts of arrays."""
    if isinstance(kind, Fixed):
        return kind.size_bytes
    if isinstance(kind, Struct):
        return sum(_smallest_field(f, version, flexible) for f in kind.at(version)) + flexible or 1
    if flexible:
        return 1
    return 2 if kind is STRING else 4


def _smallest_field(f: Field, version: int, flexible: bool) -> int:
    if isinstance(f.kind, Struct) and version in f.nullable:
        return 1
    return smallest_size(f.kind, version, flexible)

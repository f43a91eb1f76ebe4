"""Scopes: the separate sets of names that tenants use.

A client with a scope uses plain names, for example `orders`. The server stores them as full names: the prefix of the
scope, then the plain name. All prefixes have the same length, so a full name belongs to exactly one scope and no two
pairs of scope and plain name share a full name. Topics, rooms, groups and transactional ids all have full names of this
form. Administrators, whose access has no scope, see full names.
"""

import re
from secrets import choice
from typing import NamedTuple

from kwire.wire.names import OutsideScope

# Lower-case letters and digits without those that are easily confused (0 and o, 1 and l).
ID_CHARACTERS = "abcdefghijkmnpqrstuvwxyz23456789"
ID_LENGTH = 11
# All prefixes start with this.
MARK = "kws-"
_END = "."
# The length of every prefix. A plain name may be this much shorter than a name without a scope.
PREFIX_LENGTH = len(MARK) + ID_LENGTH + len(_END)

_PREFIX = re.compile(f"{MARK}[{ID_CHARACTERS}]{{{ID_LENGTH}}}{re.escape(_END)}")


class Scope(NamedTuple):
    """The set of names of one tenant. `name` is what administrators call it; only `id` is part of full names."""

    name: str
    id: str

    @property
    def prefix(self) -> str:
        return f"{MARK}{self.id}{_END}"

    def full_name(self, plain: str) -> str:
        """Return the name under which the server stores a name of this scope."""
        return self.prefix + plain

    def plain_name(self, full: str) -> str | None:
        """Return the name as clients of this scope see it, or None if it does not belong to this scope."""
        return full[PREFIX_LENGTH:] if full.startswith(self.prefix) else None

    def contains(self, full: str) -> bool:
        return full.startswith(self.prefix)

    def hide_in(self, text: str) -> str:
        """Return a message with plain names in place of the full names of this scope."""
        return text.replace(self.prefix, "")


class ScopedNames:
    """The translation between the plain names of one scope and full names, for the codec."""

    __slots__ = ("_scope", "prefix")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.prefix = scope.prefix

    def plain(self, full: str) -> str:
        """Return the name as clients of the scope see it. Raises OutsideScope. An empty string is not a name."""
        if full.startswith(self.prefix) or not full:
            return full[PREFIX_LENGTH:]
        raise OutsideScope(f'name "{full}" does not belong to scope "{self._scope.name}"')

    def text(self, message: str) -> str:
        return self._scope.hide_in(message)


def new_scope_id() -> str:
    """Return a random id of 55 bits. The caller must check that no other scope has it."""
    return "".join(choice(ID_CHARACTERS) for _ in range(ID_LENGTH))


def prefix_of(full: str) -> str:
    """Return the prefix of a full name, or an empty string if the name belongs to no scope."""
    # Most names have no prefix, and this is the fastest check.
    if not full.startswith(MARK):
        return ""
    found = _PREFIX.match(full)
    return "" if found is None else found[0]


def plain_part(full: str) -> str:
    """Return a name without the prefix of its scope; the name itself if it belongs to no scope."""
    return full[len(prefix_of(full)) :]

"""Quota entities: whom a quota is for, and which quota applies to a client.

An entity is a user, a client id, both, or an IP address. Each part is a name or the default, which stands for all
names without a quota of their own.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from kwire.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
# The name of the default. No entity has an empty name.
DEFAULT = ""
# Kafka has no limit of its own. The name of a user has at most 255 bytes, a client id at most 32,767.
NAME_BYTES_MAX = 1024


class QuotaEntity(NamedTuple):
    """The parts of an entity: None if the entity has no such part, DEFAULT for the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[str, str | None]:
        """Return the type and the name of each part, in which None is the default, as in Kafka's messages."""
        named = zip((USER, CLIENT_ID, IP), self, strict=True)
        return {kind: name or None for kind, name in named if name is not None}

    @property
    def key(self) -> str:
        """A text that no other entity has, for the metadata store. The default is `<default>`."""
        parts = self.parts().items()
        return "/".join(f"{kind}/{'<default>' if name is None else quote(name, safe='')}" for kind, name in parts)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in self.parts().items())


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these types and names; the name None is the default. Raises KafkaError as Kafka does."""
    found: dict[str, str] = {}
    for kind, name in parts:
        if kind in found:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind[:200]}")
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind[:200]}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise _invalid(f"the name of a {kind} must have at most {NAME_BYTES_MAX} bytes")
        found[kind] = DEFAULT if name is None else name
    if not found:
        raise _invalid("Invalid empty client quota entity")
    if IP in found:
        if len(found) > 1:
            raise _invalid(
                "Invalid quota entity combination: an IP address cannot be combined with a user or client id"
            )
        found[IP] = found[IP] and _address(found[IP])
    return QuotaEntity(found.get(USER), found.get(CLIENT_ID), found.get(IP))


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _invalid(f"{text[:200]} is not a valid IP address") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


class Match(NamedTuple):
    """The limit that applies to a client, and the user and client id that share it. "" is any."""

    limit: float
    user: str
    client_id: str


Limits = Mapping[QuotaEntity, Mapping[str, float]]


def find_limit(limits: Limits, kind: str, user: str, client_id: str | None) -> Match | None:
    """Return the most specific quota of this kind, in Kafka's order; None if there is none.

    `client_id` is None for clients that have no client id at all, those of HTTP. Quotas for client ids do not apply to
    them.
    """
    for entity in _candidates(user, client_id):
        values = limits.get(entity)
        if values is not None and (limit := values.get(kind)) is not None:
            # With a quota for the default, each user or client id has the whole quota for itself.
            return Match(
                limit,
                "" if entity.user is None else user,
                "" if entity.client_id is None else client_id or "",
            )
    return None


def _candidates(user: str, client_id: str | None) -> Iterator[QuotaEntity]:
    for of_user in (user, DEFAULT, None):
        if client_id:
            yield QuotaEntity(of_user, client_id)
        if client_id is not None:
            yield QuotaEntity(of_user, DEFAULT)
        if of_user is not None:
            yield QuotaEntity(of_user)

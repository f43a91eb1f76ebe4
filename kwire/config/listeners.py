"""Addresses: ``NAME://host:port`` as Kafka writes listeners, and plain ``host:port``.

An IPv6 host stands in brackets, an empty host means all interfaces, port 0 lets the machine choose one.
"""

import re
from typing import NamedTuple

PORT_MAX = 65535

_LISTENER = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)://(?P<address>.*)")
_ADDRESS = re.compile(r"(\[(?P<bracketed>[0-9a-fA-F:.%A-Za-z]+)\]|(?P<plain>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host and a port; an empty host is every interface."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A host name other than localhost counts as reachable by others."""
        if self.host in ("localhost", "127.0.0.1", "::1"):
            return True
        import ipaddress  # only for unusual addresses: it costs start-up time

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """A named door for Kafka clients and how it is secured."""

    name: str
    security_protocol: str
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_address(text: str) -> Address:
    """``host:port``; ValueError says what is expected."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > PORT_MAX:
        raise ValueError(
            f"Expected host:port with a port from 0 to {PORT_MAX} (an IPv6 host in brackets), got {text!r}"
        )
    return Address(match["bracketed"] or match["plain"] or "", int(match["port"]))


def parse_listener(text: str, security_protocols: dict[str, str]) -> Listener:
    """``NAME://host:port``; the name must be mapped to a security protocol."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"Expected NAME://host:port, got {text!r}")
    name = match["name"].upper()
    if name not in security_protocols:
        raise ValueError(f"Listener {name} has no entry in listener.security.protocol.map")
    address = parse_address(match["address"])
    return Listener(name, security_protocols[name], address.host, address.port)


def parse_security_protocols(entries: str) -> dict[str, str]:
    """``NAME:PROTOCOL,…`` to a table, names in capitals as Kafka compares them."""
    table: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in entries.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name:
            raise ValueError(f"Expected NAME:PROTOCOL, got {entry!r}")
        table[name.strip().upper()] = protocol.strip().upper()
    return table

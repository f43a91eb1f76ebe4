"""Parsers for listeners, ``NAME://host:port``, and addresses, ``host:port``.

An IPv6 host is written in brackets. An empty host stands for all interfaces. For port 0 the system chooses a port.
"""

import re
from typing import NamedTuple

PORT_MAX = 65535

_LISTENER = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)://(?P<address>.*)")
_ADDRESS = re.compile(r"(\[(?P<bracketed>[0-9a-fA-F:.%A-Za-z]+)\]|(?P<plain>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host and a port. An empty host stands for all interfaces."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address. It is False for every host name except localhost."""
        if self.host in ("localhost", "127.0.0.1", "::1"):
            return True
        import ipaddress  # imported here, because it takes start-up time and only unusual addresses need it

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """A named listener for Kafka clients and its security protocol."""

    name: str
    security_protocol: str
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``. Raises ValueError with the expected syntax."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > PORT_MAX:
        raise ValueError(
            f"Expected host:port with a port from 0 to {PORT_MAX} (an IPv6 host in brackets), got {text!r}"
        )
    return Address(match["bracketed"] or match["plain"] or "", int(match["port"]))


def parse_listener(text: str, security_protocols: dict[str, str]) -> Listener:
    """Parse ``NAME://host:port``. Raises ValueError if the name has no security protocol."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"Expected NAME://host:port, got {text!r}")
    name = match["name"].upper()
    if name not in security_protocols:
        raise ValueError(f"Listener {name} has no entry in listener.security.protocol.map")
    address = parse_address(match["address"])
    return Listener(name, security_protocols[name], address.host, address.port)


def parse_security_protocols(entries: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL,…``. Names are converted to upper case, in which Kafka compares them."""
    table: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in entries.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name:
            raise ValueError(f"Expected NAME:PROTOCOL, got {entry!r}")
        table[name.strip().upper()] = protocol.strip().upper()
    return table

"""The allowed targets of webhooks: rules for URLs, ports and addresses. This module does not look up names.

A client that may register a webhook can make this server send requests from inside its network (SSRF). So a URL must
have a strict form that all parsers parse in the same way, and its address must be public. The tables contain the
entries of IANA's registries of special-purpose addresses. Python's `ipaddress` is not used for this, because its
results differ between releases. Of IPv6 only 2000::/3 is public. So all other addresses (mapped and compatible IPv4,
NAT64, unique local, link-local, multicast, unassigned) are refused, even if they are not in a table.

`is_private_allowed` permits the operator's own network: loopback, private and shared ranges. Addresses that no receiver
can have (multicast, unspecified, reserved) and the metadata services of clouds are never permitted.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

URL_LENGTH_MAX = 2048
HOST_LENGTH_MAX = 253
DEFAULT_PORTS = {"https": 443, "http": 80}
PORT_MAX = 65535

# Names of the metadata services of clouds. They are always refused without a lookup. Other names of these services are
# refused after the lookup, because of their addresses.
METADATA_NAMES = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "metadata.tencentyun.com",
        "api.metadata.cloud.ibm.com",
        "instance-data",
        "instance-data.ec2.internal",
    }
)
# Suffixes of names in local networks. Unless private addresses are allowed, such names are refused without a lookup.
LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".lan", ".intranet", ".corp")

_PRIVATE_V4 = {
    "loopback": ("127.0.0.0/8",),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "shared with a carrier": ("100.64.0.0/10",),
}
_PRIVATE_V6 = {"loopback": ("::1/128",), "private": ("fc00::/7",)}
_FORBIDDEN_V4 = {
    "of a cloud's metadata service": ("169.254.169.254/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"),
    "of this network": ("0.0.0.0/8",),
    "link-local": ("169.254.0.0/16",),
    "kept for protocols": ("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
    "for documentation": ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    "for measurements": ("198.18.0.0/15",),
    "multicast": ("224.0.0.0/4",),
    "reserved": ("240.0.0.0/4",),
}
_FORBIDDEN_V6 = {
    "of a cloud's metadata service": ("fd00:ec2::/32", "fd20:ce::/32", "fd00:42::42/128"),
    "unspecified": ("::/128",),
    "link-local": ("fe80::/10", "fec0::/10"),
    "multicast": ("ff00::/8",),
    "translated to IPv4": ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "2002::/16", "2001::/32"),
    "kept for protocols": ("2001::/23", "2620:4f:8000::/48"),
    "for documentation": ("2001:db8::/32", "3fff::/20"),
}
_PUBLIC_V6 = IPv6Network("2000::/3")


class ForbiddenTarget(Exception):
    """The target of a webhook is not allowed. The message gives the reason."""


class Target(NamedTuple):
    """A parsed URL. `host` is a name in lower case, or an address without brackets."""

    scheme: str
    host: str
    port: int
    # The path and the query. It begins with a slash.
    path: str

    @property
    def literal(self) -> IPv4Address | IPv6Address | None:
        """The host as an address, or None if the host is a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


class AddressRules(NamedTuple):
    """The rules that an operator has configured. If `ports` is None, all ports are allowed."""

    is_private_allowed: bool = False
    is_http_allowed: bool = False
    ports: frozenset[int] | None = frozenset({80, 443, 8080, 8443})

    def check_url(self, url: str) -> Target:
        """Check and parse a URL, without looking up the name in it. Raises ForbiddenTarget."""
        target = parse_url(url)
        if target.scheme != "https" and not (self.is_http_allowed or self.is_private_allowed):
            raise ForbiddenTarget("only https is allowed; kwire.webhooks.allow.http permits http")
        # Services in a private network may have any port.
        if self.ports is not None and not self.is_private_allowed and target.port not in self.ports:
            raise ForbiddenTarget(f"the port {target.port} is not one of kwire.webhooks.ports")
        literal = target.literal
        if literal is not None:
            self.check_address(literal)
        elif target.host in METADATA_NAMES:
            raise ForbiddenTarget(f"{target.host} is a name of a cloud's metadata service")
        elif not self.is_private_allowed and is_local_name(target.host):
            raise ForbiddenTarget(f"{target.host} is a name of this machine or of its own network")
        return target

    def check_address(self, address: IPv4Address | IPv6Address) -> None:
        """Raise ForbiddenTarget unless a connection to this address is allowed."""
        problem = refusal(address, is_private_allowed=self.is_private_allowed)
        if problem is not None:
            raise ForbiddenTarget(f"{address} is an address {problem}")

    def check_addresses(self, addresses: Iterable[str]) -> list[str]:
        """Check all addresses of a name, and return them. Raises ForbiddenTarget if one of them is not allowed."""
        found = list(dict.fromkeys(addresses))
        if not found:
            raise ForbiddenTarget("the name has no address")
        for text in found:
            try:
                address = ip_address(text)
            except ValueError:
                raise ForbiddenTarget(f"{text[:100]!r} is not a valid address") from None
            self.check_address(address)
        return found


def parse_url(url: str) -> Target:
    """Parse a URL. Raises ForbiddenTarget unless the URL has the form `scheme://host[:port][/path][?query]`.

    Parsers treat blanks, control characters, backslashes, other alphabets, user names and fragments differently. So
    these are refused. A name in another alphabet has to be in its ASCII form (`xn--…`).
    """
    if len(url) > URL_LENGTH_MAX:
        raise ForbiddenTarget(f"the URL has {len(url)} characters, {URL_LENGTH_MAX} are allowed")
    found = _URL.fullmatch(url)
    if found is None:
        raise ForbiddenTarget(
            "the URL is not of the form https://host[:port][/path][?query], in ASCII, without a user name or a fragment"
        )
    scheme, host, port_text = found["scheme"].lower(), found["host"].lower(), found["port"]
    port = DEFAULT_PORTS[scheme] if port_text is None else int(port_text)
    if not 0 < port <= PORT_MAX:
        raise ForbiddenTarget(f"{port_text} is not a valid port")
    if host.startswith("["):
        host = host[1:-1]
        try:
            host = str(IPv6Address(host))
        except ValueError:
            raise ForbiddenTarget(f"[{host}] is not a valid IPv6 address") from None
    else:
        host = _check_host(host)
    path = found["path"] or ""
    return Target(scheme, host, port, path if path.startswith("/") else "/" + path)


def is_local_name(name: str) -> bool:
    """Whether a name is not public: it has no dot, such as localhost, or a suffix for local networks."""
    return "." not in name or name.endswith(LOCAL_SUFFIXES)


def refusal(address: IPv4Address | IPv6Address, *, is_private_allowed: bool) -> str | None:
    """Return the reason why connections to an address are not allowed, or None if they are allowed."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return "with a zone, so it is valid only on one link"
        mapped = address.ipv4_mapped
        if mapped is not None:
            # A connection to a mapped address is a connection to the IPv4 address.
            return refusal(mapped, is_private_allowed=is_private_allowed) or (
                None if is_private_allowed else "mapped from IPv4"
            )
    never, own = (
        (_FORBIDDEN_V4_NETS, _PRIVATE_V4_NETS)
        if isinstance(address, IPv4Address)
        else (_FORBIDDEN_V6_NETS, _PRIVATE_V6_NETS)
    )
    # Ranges that are never allowed are checked first, because some of them are parts of private ranges.
    for network, what in never:
        if address in network:
            return f"that is {what}"
    for network, what in own:
        if address in network:
            return None if is_private_allowed else f"that is {what}"
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "that is not public"
    return None


def _check_host(host: str) -> str:
    """Check a host name or an IPv4 address, and return it. An address must have the form a.b.c.d.

    Raises ForbiddenTarget.
    """
    name = host.removesuffix(".")
    labels = name.split(".")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ForbiddenTarget(f"{host[:HOST_LENGTH_MAX]!r} is not a valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        # Resolvers differ in whether they accept 127.1, 0x7f.1, 017700000001 and 2130706433 as addresses.
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ForbiddenTarget(f"{host[:HOST_LENGTH_MAX]!r} is not an IPv4 address of the form a.b.c.d") from None
    return name


def _networks(
    table: Mapping[str, tuple[str, ...]], kind: type[IPv4Network] | type[IPv6Network]
) -> tuple[tuple[IPv4Network | IPv6Network, str], ...]:
    return tuple((kind(text), what) for what, texts in table.items() for text in texts)


_PRIVATE_V4_NETS, _FORBIDDEN_V4_NETS = _networks(_PRIVATE_V4, IPv4Network), _networks(_FORBIDDEN_V4, IPv4Network)
_PRIVATE_V6_NETS, _FORBIDDEN_V6_NETS = _networks(_PRIVATE_V6, IPv6Network), _networks(_FORBIDDEN_V6, IPv6Network)

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>[/?](?:[a-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9a-f]{2})*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

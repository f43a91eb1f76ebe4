"""Where webhooks may go: rules about URLs, ports and addresses, and nothing else; no name is looked up here.

Whoever may register a webhook can make this server send requests, from its own place in the network. So a URL has to be
of a plain, strict form that no two readers understand differently, and the address behind it has to be one of the
public Internet. The tables follow IANA's registries of special-purpose addresses, spelled out because the answers of
Python's `ipaddress` differ from one release to the next. Of IPv6 only 2000::/3 is public, so all that is not listed
(mapped and compatible IPv4, NAT64, unique local, link-local, multicast, what is yet to be assigned) is refused as well.

`is_private_allowed` opens what people mean by their own network: loopback, private and shared ranges. Addresses where
no receiver can be (multicast, unspecified, reserved), or where a cloud keeps its secrets, are never opened.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

URL_LENGTH_MAX = 2048
HOST_LENGTH_MAX = 253
DEFAULT_PORTS = {"https": 443, "http": 80}
PORT_MAX = 65535

# Names that lead to metadata services or to this machine whatever the resolver says.
REFUSED_NAMES = frozenset({"localhost", "metadata", "instance-data", "metadata.google.internal", "metadata.goog"})
LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".lan", ".intranet", ".corp")

_OWN_V4 = {
    "loopback": ("127.0.0.0/8",),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "shared with a carrier": ("100.64.0.0/10",),
}
_OWN_V6 = {"loopback": ("::1/128",), "private": ("fc00::/7",)}
_NEVER_V4 = {
    "of a cloud's metadata service": ("169.254.169.254/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"),
    "of this network": ("0.0.0.0/8",),
    "link-local": ("169.254.0.0/16",),
    "kept for protocols": ("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
    "for documentation": ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    "for measurements": ("198.18.0.0/15",),
    "multicast": ("224.0.0.0/4",),
    "reserved": ("240.0.0.0/4",),
}
_NEVER_V6 = {
    "of a cloud's metadata service": ("fd00:ec2::/32", "fd20:ce::/32"),
    "unspecified": ("::/128",),
    "link-local": ("fe80::/10", "fec0::/10"),
    "multicast": ("ff00::/8",),
    "translated to IPv4": ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "2002::/16", "2001::/32"),
    "kept for protocols": ("2001::/23", "2620:4f:8000::/48"),
    "for documentation": ("2001:db8::/32", "3fff::/20"),
}
_PUBLIC_V6 = IPv6Network("2000::/3")


class ForbiddenTarget(Exception):
    """A webhook may not go there; the text says why."""


class Target(NamedTuple):
    """A URL, taken apart. `host` is a name in small letters, or an address without brackets."""

    scheme: str
    host: str
    port: int
    # With the query; it begins with a slash.
    path: str

    @property
    def literal(self) -> IPv4Address | IPv6Address | None:
        """The address, if the host is one."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


class AddressRules(NamedTuple):
    """What an operator allows. `ports` of None are all."""

    is_private_allowed: bool = False
    is_http_allowed: bool = False
    ports: frozenset[int] | None = frozenset({80, 443, 8080, 8443})

    def check_url(self, url: str) -> Target:
        """What can be told without looking the name up; raises ForbiddenTarget."""
        target = parse_url(url)
        if target.scheme != "https" and not (self.is_http_allowed or self.is_private_allowed):
            raise ForbiddenTarget("only https is allowed; kwire.webhooks.allow.http permits http")
        # Who opens the private network has services on any port there.
        if self.ports is not None and not self.is_private_allowed and target.port not in self.ports:
            raise ForbiddenTarget(f"the port {target.port} is not one of kwire.webhooks.ports")
        literal = target.literal
        if literal is not None:
            self.check_address(literal)
        elif not self.is_private_allowed and is_local_name(target.host):
            raise ForbiddenTarget(f"{target.host} is a name of this machine or of its own network")
        return target

    def check_address(self, address: IPv4Address | IPv6Address) -> None:
        """Raises ForbiddenTarget unless a connection to this very address is allowed."""
        problem = refusal(address, is_private_allowed=self.is_private_allowed)
        if problem is not None:
            raise ForbiddenTarget(f"{address} is an address {problem}")

    def check_addresses(self, addresses: Iterable[str]) -> list[str]:
        """All that a name stands for, as text; one bad address among them makes the whole name suspect."""
        found = list(dict.fromkeys(addresses))
        if not found:
            raise ForbiddenTarget("the name stands for no address")
        for text in found:
            try:
                address = ip_address(text)
            except ValueError:
                raise ForbiddenTarget(f"{text[:100]!r} is no address") from None
            self.check_address(address)
        return found


def parse_url(url: str) -> Target:
    """Take a URL apart; raises ForbiddenTarget for what is not of the plain form `scheme://host[:port][/path][?query]`.

    Blanks, control characters, backslashes, other alphabets, user names and fragments are what readers of URLs disagree
    about, so none of them is taken. A name of another alphabet is given in its ASCII form (`xn--…`).
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
        raise ForbiddenTarget(f"{port_text} is no port")
    if host.startswith("["):
        host = host[1:-1]
        try:
            host = str(IPv6Address(host))
        except ValueError:
            raise ForbiddenTarget(f"[{host}] is no IPv6 address") from None
    else:
        host = _checked_name(host)
    path = found["path"] or ""
    return Target(scheme, host, port, path if path.startswith("/") else "/" + path)


def is_local_name(name: str) -> bool:
    """A name that no public receiver has: without a dot, or under a suffix that stays within a network."""
    return name in REFUSED_NAMES or "." not in name or name.endswith(LOCAL_SUFFIXES)


def refusal(address: IPv4Address | IPv6Address, *, is_private_allowed: bool) -> str | None:
    """Why no connection may be made to an address; None if it may."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return "with a zone, so one of a single link"
        mapped = address.ipv4_mapped
        if mapped is not None:
            # Connecting to it is connecting to the IPv4 address.
            return refusal(mapped, is_private_allowed=is_private_allowed) or (
                None if is_private_allowed else "mapped from IPv4"
            )
    never, own = (_NEVER_V4_NETS, _OWN_V4_NETS) if isinstance(address, IPv4Address) else (_NEVER_V6_NETS, _OWN_V6_NETS)
    # What is never allowed goes first: some of it lies within what is one's own.
    for network, what in never:
        if address in network:
            return f"that is {what}"
    for network, what in own:
        if address in network:
            return None if is_private_allowed else f"that is {what}"
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "that is not public"
    return None


def _checked_name(host: str) -> str:
    """A name, or an IPv4 address in its one canonical form."""
    name = host.removesuffix(".")
    labels = name.split(".")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ForbiddenTarget(f"{host[:HOST_LENGTH_MAX]!r} is no host name")
    if _NUMBER.fullmatch(labels[-1]):
        # Resolvers read 127.1, 0x7f.1, 017700000001 and 2130706433 as addresses, each in its own way.
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ForbiddenTarget(f"{host[:HOST_LENGTH_MAX]!r} is no IPv4 address of the form a.b.c.d") from None
    return name


def _networks(
    table: Mapping[str, tuple[str, ...]], kind: type[IPv4Network] | type[IPv6Network]
) -> tuple[tuple[IPv4Network | IPv6Network, str], ...]:
    return tuple((kind(text), what) for what, texts in table.items() for text in texts)


_OWN_V4_NETS, _NEVER_V4_NETS = _networks(_OWN_V4, IPv4Network), _networks(_NEVER_V4, IPv4Network)
_OWN_V6_NETS, _NEVER_V6_NETS = _networks(_OWN_V6, IPv6Network), _networks(_NEVER_V6, IPv6Network)

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>[/?](?:[a-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9a-f]{2})*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

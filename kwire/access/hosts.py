"""The form in which hosts of clients and hosts of ACLs are compared."""

import socket

_MAPPED = "::ffff:"


def canonical_host(text: str) -> str:
    """Return the shortest form of an IPv6 address. An IPv4 address in an IPv6 address becomes the IPv4 address.

    So an ACL for `0:0:0:0:0:0:0:1`, the form that Java prints, applies to clients from `::1`. Other texts are returned
    unchanged.
    """
    if ":" not in text:
        return text
    try:
        shortest = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, text.partition("%")[0]))
    except (OSError, ValueError):
        return text
    return shortest.removeprefix(_MAPPED) if "." in shortest and shortest.startswith(_MAPPED) else shortest


def network_of(host: str) -> str:
    """Return the network of a client: an IPv4 address, or the first 64 bits of an IPv6 address.

    An IPv6 client can usually choose the other bits, so that each of its connections has another address.
    """
    host = canonical_host(host)
    if ":" not in host:
        return host
    try:
        return socket.inet_pton(socket.AF_INET6, host)[:8].hex()
    except OSError:
        return host

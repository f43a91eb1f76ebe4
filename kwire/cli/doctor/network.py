"""Checks of the ports, and of the addresses that the server tells its clients to use."""

import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from kwire.cli.doctor.finding import OK, PROBLEM, WARNING, Finding
from kwire.kafka_client.settings import Address

CONNECT_SECONDS = 2.0


def check_advertised(advertised: Sequence[Address], bootstrap: Address) -> Iterator[Finding]:
    """Check that each address in the metadata can be resolved and answers, as clients will use it next."""
    for address in advertised:
        yield check_address(address, bootstrap)


def check_address(address: Address, bootstrap: Address) -> Finding:
    remedy = (
        f"set advertised.listeners to an address that clients can reach, for example PLAINTEXT://{bootstrap.host}:"
        f"{bootstrap.port}, and restart the server"
    )
    check = "advertised listener"
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            check, PROBLEM, f"the server tells clients to use {address}, but the host is unknown: {reason}", remedy
        )
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            check, PROBLEM, f"the server tells clients to use {address}, which does not answer: {reason}", remedy
        )
    if any(_is_loopback(str(one[4][0])) for one in found) and not _is_loopback_host(bootstrap.host):
        text = f"the server tells clients to use {address}, which only programs on the server's machine can reach"
        return Finding(check, WARNING, text, remedy)
    return Finding(check, OK, f"{address} answers")


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def _is_loopback_host(host: str) -> bool:
    try:
        return any(_is_loopback(str(one[4][0])) for one in socket.getaddrinfo(host, None))
    except OSError:
        return False

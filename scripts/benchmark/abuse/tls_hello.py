"""TLS handshakes of the attackers: the first message alone, or a whole handshake."""

import socket
import ssl
from functools import cache


@cache
def _context() -> ssl.SSLContext:
    """Return a context without verification, because an attacker does not care with whom it talks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@cache
def client_hello() -> bytes:
    """Return a valid ClientHello. It is always the same."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        _context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake does not end without the server")


def shake_hands(connection: socket.socket) -> ssl.SSLSocket:
    return _context().wrap_socket(connection, server_hostname="localhost")

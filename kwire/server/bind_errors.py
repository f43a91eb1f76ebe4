"""Errors of listeners that cannot be opened: the listener, the reason and the remedy."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class ListenerRefused(OSError):
    """A listener cannot be opened. Its message is complete."""


@contextmanager
def naming_listener(listener: str, option: str) -> Iterator[None]:
    """Replace an OSError in the block by one that names the listener and the option that configures it."""
    try:
        yield
    except OSError as error:
        raise ListenerRefused(f"listener {listener} cannot be opened: {_reason(error, option)}") from error


def _reason(error: OSError, option: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"its host name cannot be resolved ({error.strerror}); correct {option}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"the address is in use; stop the program that uses it, or choose another port with {option}"
        case errno.EADDRNOTAVAIL:
            return f"this machine does not have the address; correct {option}"
        case errno.EACCES | errno.EPERM:
            return (
                "the port is not permitted; ports below 1024 need the capability CAP_NET_BIND_SERVICE, or choose "
                f"another port with {option}"
            )
    return str(error)

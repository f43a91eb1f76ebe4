"""How a client connects to a cluster: addresses, TLS, login and timeouts."""

from typing import TYPE_CHECKING, Final, NamedTuple

from kwire.kafka_client.login import Login

if TYPE_CHECKING:
    import ssl

BOOTSTRAP_SERVERS_MAX: Final = 100


class Address(NamedTuple):
    """The host and the port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientSettings(NamedTuple):
    """How to connect to a cluster. `tls` and `login` are None if its listener does not use them.

    `request_seconds` is how long a broker may take for a response, beyond the time that the request lets it wait.
    """

    bootstrap: tuple[Address, ...]
    tls: "ssl.SSLContext | None" = None
    mechanism: str = "SCRAM-SHA-512"
    login: Login | None = None
    connect_seconds: float = 10.0
    request_seconds: float = 30.0


def addresses_of(bootstrap_servers: str) -> tuple[Address, ...]:
    """Return the addresses in HOST:PORT,HOST:PORT. Raises ValueError."""
    texts = bootstrap_servers.split(",")
    if len(texts) > BOOTSTRAP_SERVERS_MAX:
        raise ValueError(f"at most {BOOTSTRAP_SERVERS_MAX} servers can be named, got {len(texts)}")
    return tuple(_address(text.strip()) for text in texts)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"a server is named HOST:PORT, not {text!r}")
    return Address(host.strip("[]"), int(port))

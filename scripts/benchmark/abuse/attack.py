"""The description of an attack: settings of the server, preparation, and the requests of one strike.

A strike is one execution of the attack, with the selected size. Strikes are repeated, at most once a second, until the
time of the attack is over. An attack that holds memory strikes only once. Its connections stay open until memory was
measured.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.servers import LOOPBACK
from benchmark.wire import connect


@dataclass
class Target:
    """The server under attack, as an attacker sees it. `held` are connections that stay open."""

    kafka_port: int
    http_port: int
    tls_port: int
    size: int
    held: list[socket.socket] = field(default_factory=list)
    strikes: int = 0
    drips: int = 0

    @property
    def kafka_address(self) -> tuple[str, int]:
        return (LOOPBACK, self.kafka_port)

    def kafka(self) -> socket.socket:
        return connect(self.kafka_address, ANSWER_SECONDS_MAX)

    def http(self) -> socket.socket:
        return connect((LOOPBACK, self.http_port), ANSWER_SECONDS_MAX)

    def tls(self) -> socket.socket:
        """Return a TCP connection to the listener with TLS. The handshake is left to the caller."""
        return connect((LOOPBACK, self.tls_port), ANSWER_SECONDS_MAX)

    def hold(self, connection: socket.socket) -> socket.socket:
        self.held.append(connection)
        return connection


@dataclass(frozen=True)
class Attack:
    """An attack. `full` and `quick` are the sizes of a strike. `title` has braces for the size, and names its unit.

    If `is_held` is true, `keep` is called once a second until the attack ends. If `large_bytes` is not 0, the good
    client also sends larger Produce requests of this size. If `is_guarded` is true, the server has SASL_PLAINTEXT and
    SSL listeners and an authorizer, the attacker does not log in, and the good client is also measured at logging in.
    """

    name: str
    title: str
    full: int
    quick: int
    strike: Callable[[Target], None]
    prepare: Callable[[Target], None] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    is_held: bool = False
    keep: Callable[[Target], None] | None = None
    has_slow_sync: bool = False
    large_bytes: int = 0
    is_guarded: bool = False

    def titled(self, size: int) -> str:
        return self.title.format(f"{size:,}")

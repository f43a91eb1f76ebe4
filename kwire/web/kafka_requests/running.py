"""The interface through which a JSON request reaches the handlers of the Kafka port. `kwire/server` implements it."""

from typing import NamedTuple, Protocol

from kwire.access.access import Access
from kwire.wire.schema import Api
from kwire.wire.types import Buffer


class HttpClient(NamedTuple):
    """The client of a request: its rights, and the addresses of its connection.

    `local_host` is the address of the server to which the client connected.
    """

    access: Access
    host: str
    local_host: str


class RunKafkaRequest(Protocol):
    """Runs a request of a Kafka API."""

    async def __call__(self, api: Api, version: int, body: bytes, client: HttpClient) -> list[Buffer]:
        """Return the encoded response to an encoded request. Names are those that the client sees.

        Raises TimeoutError if the response is not ready in time. Then the change that it requests may still be made.
        """
        ...

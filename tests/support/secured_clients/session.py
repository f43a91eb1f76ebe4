"""A consumer that runs in a thread while the test changes the server."""

import threading
from typing import Any

from tests.support.secured_clients.interface import CLIENT_TIMEOUT_S, Refused, SecuredClient
from tests.support.secured_clients.login import Login


class Session:
    """One client that reads `count` values of a topic in a group of the same name."""

    def __init__(self, client: SecuredClient, login: Login, topic: str, count: int) -> None:
        self.client = client
        self.login = login
        self.topic = topic
        self._count = count
        self._values: list[bytes] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._values = self.client.read_group(self.login, self.topic, self.topic, self._count)
        except BaseException as error:
            self._error = error

    def _end(self) -> None:
        self._thread.join(2 * CLIENT_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.client.name} has not ended"

    def values(self) -> list[bytes]:
        """Wait for the end, and return what was read."""
        self._end()
        if self._error is not None:
            raise AssertionError(f"{self.client.name} failed") from self._error
        return self._values

    def failure(self) -> str:
        """Wait for the end, and return the error that is not a refusal."""
        self._end()
        assert isinstance(self._error, AssertionError), f"{self.client.name}: {self._error!r}"
        return str(self._error)

    def refusal(self) -> Any:
        """Wait for the end, and return the kind of the refusal."""
        self._end()
        if not isinstance(self._error, Refused):
            raise AssertionError(f"{self.client.name} was not refused: {self._values}") from self._error
        return self._error.kind

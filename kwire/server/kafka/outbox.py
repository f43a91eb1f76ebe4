"""The outbox collects the responses of one loop iteration, and sends them together at the end of the iteration."""

import asyncio
import logging
from typing import Protocol

from kwire.logs.log_context import fields

log = logging.getLogger("kwire.server")


class Sender(Protocol):
    """A connection with responses to send."""

    client_host: str
    number: int

    def send(self) -> None: ...

    def abort(self) -> None: ...


class Outbox:
    """The connections whose responses are sent at the end of the current loop iteration.

    If responses were sent one by one, each would wake a client on the same machine. Sent together, they wake it once.
    """

    __slots__ = ("_loop", "_senders")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._senders: list[Sender] = []

    def add(self, sender: Sender) -> None:
        if not self._senders:
            self._loop.call_soon(self._send)
        self._senders.append(sender)

    def _send(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            try:
                sender.send()
            except Exception:
                # If sending fails for one connection, the responses of the others are still sent.
                about = fields(connection=sender.number)
                log.exception("sending failed; the connection from %s is closed", sender.client_host, extra=about)
                sender.abort()

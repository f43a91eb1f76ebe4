"""The translation of names at the edge, for clients with a scope. Inside, the server uses full names."""

from typing import Protocol


class OutsideScope(Exception):
    """Raised when a response for a client with a scope has a name that does not belong to the scope.

    It is a defect of a handler. The response is not sent, and the connection is closed.
    """


class Names(Protocol):
    """The translation between the plain names of one scope and full names."""

    @property
    def prefix(self) -> str:
        """The beginning of all full names of the scope."""
        ...

    def plain(self, full: str) -> str:
        """Return the name as clients of the scope see it. Raises OutsideScope. An empty string is not a name."""
        ...

    def text(self, message: str) -> str:
        """Return an error message with plain names in place of full names."""
        ...

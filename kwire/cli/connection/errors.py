"""The errors of connections. All name the address of the server."""

from kwire.cli.framework.errors import CannotContinue, CannotRun


class Unreachable(CannotRun, ConnectionError):
    """The server does not answer, or not as a kwire or Kafka server does."""


class LoginRefused(CannotContinue, ValueError):
    """The server needs a login, or did not accept the user, the password, or the mechanism.

    The exit code is 1, as for a missing right: the server answered, and a later attempt would fail, too.
    """


class NotSupported(CannotRun, ValueError):
    """The server does not have the API, or not the version of it that the command needs."""


class Refused(ValueError):
    """The server answered with an error."""


class RefusedOverHttp(Refused):
    """The server answered with an error over HTTP. `code` is None if the answer is not one of kwire."""

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code

"""The errors of connections. All name the address of the server."""

from kwire.cli.framework.errors import CannotRun


class Unreachable(CannotRun, ConnectionError):
    """The server does not answer, or not as a kwire or Kafka server does."""


class LoginRefused(CannotRun, ValueError):
    """The server did not accept the user, the password, or the mechanism."""


class NotSupported(CannotRun, ValueError):
    """The server does not have the API, or not the version of it that the command needs."""


class Refused(ValueError):
    """The server answered with an error."""

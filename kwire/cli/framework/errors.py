"""The errors by which commands end in another way than with exit code 1."""


class CannotRun(Exception):
    """The command cannot do its work at all, so nothing was done. The message gives the reason."""


class UsageError(CannotRun, ValueError):
    """The arguments are wrong, or contradict each other."""


class ReaderGone(BaseException):
    """Nobody reads the output any longer. It is not an Exception, so that no code takes it for a failing connection."""

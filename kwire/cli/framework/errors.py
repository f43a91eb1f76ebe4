"""The errors that end a command at once, also one with several names."""


class CannotContinue(Exception):
    """The command cannot do the rest of its work. The message gives the reason; the exit code is 1."""


class CannotRun(CannotContinue):
    """The command cannot do its work at all, so nothing was done. The exit code is 2."""


class UsageError(CannotRun, ValueError):
    """The arguments are wrong, or contradict each other."""


class ReaderGone(BaseException):
    """Nobody reads the output any longer. It is not an Exception, so that no code takes it for a failing connection."""

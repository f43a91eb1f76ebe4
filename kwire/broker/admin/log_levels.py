"""The log levels of this process's loggers, by Kafka's names. Changes last until the process ends, as in Kafka."""

import logging
from collections.abc import Mapping

from kwire.errors import ErrorCode, KafkaError

log = logging.getLogger("kwire.broker")

ROOT = "root"
# Python has no level below DEBUG, so TRACE is 5.
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def levels() -> dict[str, str]:
    """Return the effective level of every logger, sorted by name. A logger without a level has its parent's level."""
    loggers = logging.root.manager.loggerDict
    named = {name: logger for name, logger in sorted(loggers.items()) if isinstance(logger, logging.Logger)}
    return {ROOT: _shown(logging.root), **{name: _shown(logger) for name, logger in named.items()}}


def check(changes: Mapping[str, str | None]) -> None:
    """Raise KafkaError, with Kafka's code and message, if the levels cannot be set. None removes a logger's level."""
    known = levels()
    for name, level in changes.items():
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if level is None:
            if name == ROOT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
                )
        elif level not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )


def change(changes: Mapping[str, str | None]) -> None:
    """Set levels that have been checked."""
    for name, level in changes.items():
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
        log.warning("the log level of %s is %s now", name, _shown(logger))


def _shown(logger: logging.Logger) -> str:
    in_force = logger.getEffectiveLevel()
    return next((name for name, level in LEVELS.items() if in_force >= level), "TRACE")

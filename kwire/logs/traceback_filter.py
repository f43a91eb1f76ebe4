"""A logging filter for the server. It removes the traceback of errors whose message explains the problem."""

import logging

from kwire.errors import KafkaError
from storage.errors import StorageError

# The server raises these errors deliberately. Their messages name the affected object and the problem.
SELF_EXPLANATORY_ERRORS = (KafkaError, StorageError)


class TracebackFilter(logging.Filter):
    """Removes the traceback of a self-explanatory error, and appends the error's message to the log message.

    The error becomes a value of the message, so that `RepeatLimit` recognizes lines that differ only in their values.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SELF_EXPLANATORY_ERRORS):
            values = record.args if isinstance(record.args, tuple) else ()
            text = str(record.msg) if values else record.getMessage().replace("%", "%%")
            record.msg, record.args, record.exc_info = f"{text}: %s", (*values, error), None
        return True

"""A logging filter for the server. It removes the traceback of errors whose message explains the problem."""

import logging

from kwire.errors import KafkaError
from storage.errors import StorageError

# The server raises these errors deliberately. Their messages name the affected object and the problem.
SELF_EXPLANATORY_ERRORS = (KafkaError, StorageError)


class TracebackFilter(logging.Filter):
    """Removes the traceback of a self-explanatory error, and appends the error's message to the log message."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SELF_EXPLANATORY_ERRORS):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", (), None
        return True

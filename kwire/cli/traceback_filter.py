"""How the log of the server is written: errors that say everything themselves come without a traceback."""

import logging

from kwire.errors import KafkaError
from storage.errors import StorageError

# Raised on purpose, with messages that name the thing and the problem.
SPEAKING_ERRORS = (KafkaError, StorageError)


class WithoutNeedlessTracebacks(logging.Filter):
    """Puts the message of such an error behind the record's own, in the place of the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SPEAKING_ERRORS):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", (), None
        return True

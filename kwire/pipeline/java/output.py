"""What the Java process of Spark prints. Until Spark runs, it is kept in memory and shown only if the start fails.

The start of Spark prints warnings that nobody can act on, and Ivy prints each jar that it downloads. Later lines are
errors, and are shown.
"""

import codecs
import os
import sys
import threading
from collections import deque
from contextlib import suppress

# The bounds of what is kept: lines, and characters of a line.
LINES_KEPT_MAX = 200
LINE_LENGTH_MAX = 2000
READ_BYTES = 64 * 1024
# A failed start shows this many of them.
LINES_SHOWN_MAX = 30


class JavaOutput:
    """The standard error of the Java process, read by a thread."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._partial = ""
        self._is_shown = False
        self._lock = threading.Lock()
        reading, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reading,), name="java-output", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """Close this process's copy of the pipe. Called when the Java process has been started."""
        os.close(self.descriptor)

    def show(self) -> None:
        """Show the lines from now on, because Spark runs."""
        with self._lock:
            self._is_shown = True
            self._kept.clear()

    def last_lines(self) -> list[str]:
        """Return the last lines of a start that has failed."""
        with self._lock:
            lines = [*self._kept, *([self._partial] if self._partial else [])]
            return lines[-LINES_SHOWN_MAX:]

    def wait(self, seconds: float) -> None:
        """Wait until the Java process has ended, so that all its lines are there."""
        self._thread.join(seconds)

    def _read(self, descriptor: int) -> None:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(READ_BYTES):
                self._received(decode(data))

    def _received(self, text: str) -> None:
        with self._lock:
            if not self._is_shown:
                *complete, self._partial = (self._partial + text).split("\n")
                self._kept.extend(line[:LINE_LENGTH_MAX] for line in complete)
                self._partial = self._partial[:LINE_LENGTH_MAX]
                return
        # Parts of a line are shown at once: Spark draws its progress bar without line breaks. The stream may be closed
        # at the end of the process.
        with suppress(ValueError, OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

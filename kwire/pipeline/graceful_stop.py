"""Graceful stop of a streaming job: the current micro-batch is completed, and no further micro-batch is started."""

import contextlib
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WriteBatch: TypeAlias = "Callable[[DataFrame, int], None]"

# The maximum time that Spark needs, after a batch was written, to record the batch as done in its checkpoint.
COMMIT_RECORDED_AFTER_S = 5.0
# The loggers by which Py4J reports exceptions of callbacks.
_PY4J_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")
# The logger by which Spark reports the failure of a query.
_SPARK_LOGGER = "org.apache.spark.sql.execution.streaming.MicroBatchExecution"


class BatchNotWritten(Exception):
    """Raised to end a query within a micro-batch. Spark does not record the batch as done, and repeats it later."""


class StopRequest:
    """A request to stop the job, by SIGTERM or Ctrl-C. A second signal ends the process immediately."""

    def __init__(self) -> None:
        self.is_requested = False
        self.is_interrupt = False

    def request(self) -> None:
        self.is_requested = True

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT in this block. Call it only in the main thread, where Python handles signals."""
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def handle_signal(number: int, frame: FrameType | None) -> None:
            restore()
            self.is_interrupt = number == signal.SIGINT
            self.request()

        for number in before:
            signal.signal(number, handle_signal)
        try:
            yield
        finally:
            restore()


class StoppableBatchWriter:
    """Writes micro-batches until a stop is requested, and stores the exception of a failed batch.

    If Spark starts a batch after the stop was requested, the batch is refused.
    """

    def __init__(self, write: WriteBatch, stop: StopRequest, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._stop = stop
        self._monotonic = monotonic
        self._is_writing = False
        self._wrote_at = -math.inf
        self.has_refused = False
        self.failure: Exception | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no batch is being written, and the last batch ended more than COMMIT_RECORDED_AFTER_S ago."""
        return not self._is_writing and self._monotonic() - self._wrote_at > COMMIT_RECORDED_AFTER_S

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        if self._stop.is_requested:
            self.has_refused = True
            raise BatchNotWritten(f"batch {batch_id} is left for the next start")
        self._is_writing = True
        try:
            self._write(batch, batch_id)
        except Exception as error:
            self.failure = error
            # The message must be short, and `from None` removes the cause. Py4J sends the complete text to Java, where
            # Spark searches it with a regular expression that overflows the stack on long texts.
            raise BatchNotWritten(f"batch {batch_id} was not written") from None
        finally:
            self._wrote_at = self._monotonic()
            self._is_writing = False


@contextlib.contextmanager
def without_duplicate_failure_logs(spark: "SparkSession") -> Iterator[None]:
    """Suppress the log messages of Spark and Py4J for failed queries. Each has about a hundred lines.

    The job itself reports the failure.
    """

    def is_other_failure(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], BatchNotWritten))

    log4j: Any = spark._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_SPARK_LOGGER, log4j.Level.OFF)
    loggers = [logging.getLogger(name) for name in _PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_other_failure)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other_failure)

"""A streaming job is stopped between two micro-batches: what it has begun it finishes, and it begins nothing new."""

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

NOTED_AFTER_S = 5.0
# Where py4j reports what a callback raised.
_PY4J_LOGS = ("py4j.clientserver", "py4j.java_gateway")
# Where Spark reports what a query failed of.
_SPARK_LOG = "org.apache.spark.sql.execution.streaming.MicroBatchExecution"


class BatchNotWritten(Exception):
    """Ends a query at a micro-batch that the next start will do again: the one way not to have it noted as done."""


class CleanStop:
    """Whether the job was asked to stop, by SIGTERM or Ctrl-C. The second signal ends the process at once."""

    def __init__(self) -> None:
        self.is_asked = False
        self.is_interrupt = False

    def ask(self) -> None:
        self.is_asked = True

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Only in the main thread, where Python handles signals."""
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def ask(number: int, frame: FrameType | None) -> None:
            restore()
            self.is_interrupt = number == signal.SIGINT
            self.ask()

        for number in before:
            signal.signal(number, ask)
        try:
            yield
        finally:
            restore()


class WholeBatches:
    """Writes each micro-batch whole or not at all, and keeps what it failed of.

    Spark may begin a batch after the stop was asked for and before it is carried out; that batch is refused.
    """

    def __init__(self, write: WriteBatch, stop: CleanStop, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._stop = stop
        self._monotonic = monotonic
        self._is_writing = False
        self._wrote_at = -math.inf
        self.has_refused = False
        self.failure: Exception | None = None

    @property
    def is_at_rest(self) -> bool:
        """Nothing is being written, and what was is noted by now: Spark does that right after."""
        return not self._is_writing and self._monotonic() - self._wrote_at > NOTED_AFTER_S

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        if self._stop.is_asked:
            self.has_refused = True
            raise BatchNotWritten(f"batch {batch_id} is left to the next start")
        self._is_writing = True
        try:
            self._write(batch, batch_id)
        except Exception as error:
            self.failure = error
            # Short, and without its cause: py4j sends the whole to Java, where Spark searches it by a pattern that
            # overflows the stack on long texts.
            raise BatchNotWritten(f"batch {batch_id} was not written") from None
        finally:
            self._wrote_at = self._monotonic()
            self._is_writing = False


@contextlib.contextmanager
def failures_told_once(spark: "SparkSession") -> Iterator[None]:
    """Spark and py4j print all that ends a query, with a hundred lines of Java and Python; whoever runs it tells it."""

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], BatchNotWritten))

    log4j: Any = spark._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_SPARK_LOG, log4j.Level.OFF)
    loggers = [logging.getLogger(name) for name in _PY4J_LOGS]
    for logger in loggers:
        logger.addFilter(is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_news)

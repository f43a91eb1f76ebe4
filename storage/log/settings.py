"""The topic settings that a log uses. The object is replaced when the topic's configuration changes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from storage.batch.format import CREATE_TIME

# Runs a function in another thread. The function catches its own errors. Raises RuntimeError if no thread is available.
Background = Callable[[Callable[[], None]], None]


class LogSettings(Struct, frozen=True):
    """Log settings with Kafka's names and defaults, in bytes and milliseconds."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    timestamp_type: int = CREATE_TIME
